use trilogue_domain::Right;
use trilogue_wire::native::RightName;

pub fn right(right: Right) -> RightName {
    match right {
        Right::Read => RightName::Read,
        Right::Run => RightName::Run,
        Right::Answer => RightName::Answer,
        Right::Admin => RightName::Admin,
        Right::Server => RightName::Server,
    }
}

pub fn read_right(right: RightName) -> Right {
    match right {
        RightName::Read => Right::Read,
        RightName::Run => Right::Run,
        RightName::Answer => Right::Answer,
        RightName::Admin => Right::Admin,
        RightName::Server => Right::Server,
    }
}
