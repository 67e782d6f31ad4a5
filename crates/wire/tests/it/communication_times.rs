//! Times and ids in every form that is read, and in the one form that is written.

use serde_json::{Value, json};
use trilogue_wire::agent_communication::{Message, OptionalTime, Rules, Run, Time, Uuid};

use crate::communication::read_value;

fn created_at(value: &Value) -> Result<OptionalTime, String> {
    read_value::<Message>(&json!({"role": "user", "parts": [], "created_at": value}), Rules::Strict)
        .map(|message| message.created_at)
        .map_err(|violation| violation.to_string())
}

#[test]
fn a_time_is_read_in_many_forms_and_written_in_one() {
    let rows = [
        (json!("2026-11-20T23:50:09.133102Z"), "2026-11-20T23:50:09.133102Z"),
        (json!("2026-11-20T23:50:09Z"), "2026-11-20T23:50:09Z"),
        (json!("2026-11-20T23:50:09.000000Z"), "2026-11-20T23:50:09Z"),
        (json!("2026-11-20T23:50:09.5Z"), "2026-11-20T23:50:09.500000Z"),
        (json!("2026-11-20T23:50:09.133102999Z"), "2026-11-20T23:50:09.133102Z"),
        (json!("2026-11-20t23:50:09z"), "2026-11-20T23:50:09Z"),
        (json!("2026-11-20 23:50:09+00:00"), "2026-11-20T23:50:09Z"),
        (json!("2026-11-21T01:50:09+02:00"), "2026-11-20T23:50:09Z"),
        (json!("2026-11-20T18:20:09-0530"), "2026-11-20T23:50:09Z"),
        (json!("2026-11-20T23:50:09"), "2026-11-20T23:50:09Z"),
        (json!("2026-11-20T23:50"), "2026-11-20T23:50:00Z"),
        (json!("2026-11-20"), "2026-11-20T00:00:00Z"),
        (json!(" 2026-11-20T23:50:09Z "), "2026-11-20T23:50:09Z"),
        (json!(1_700_000_000), "2023-11-14T22:13:20Z"),
        (json!("1700000000"), "2023-11-14T22:13:20Z"),
        (json!(1_700_000_000.25), "2023-11-14T22:13:20.250000Z"),
        (json!("1700000000.25"), "2023-11-14T22:13:20.250000Z"),
        (json!(1_700_000_000_250_i64), "2023-11-14T22:13:20.250000Z"),
        (json!("1700000000250"), "2023-11-14T22:13:20.250000Z"),
        (json!(-1), "1969-12-31T23:59:59Z"),
        (json!("-0.000001"), "1969-12-31T23:59:59.999999Z"),
        (json!(0), "1970-01-01T00:00:00Z"),
        (json!("0001-01-01T00:00:00Z"), "0001-01-01T00:00:00Z"),
        (json!("9999-12-30T21:59:59.999999Z"), "9999-12-30T21:59:59.999999Z"),
    ];
    for (given, shown) in rows {
        let Ok(OptionalTime::At(time)) = created_at(&given) else {
            panic!("{given}: {:?}", created_at(&given))
        };
        assert_eq!(serde_json::to_value(OptionalTime::At(time)).unwrap(), json!(shown), "{given}");
    }
}

#[test]
fn what_is_no_time_is_refused() {
    let bad = [
        "",
        "x",
        "now",
        "2026-13-01T00:00:00Z",
        "2026-02-30",
        "2026-11-20T25:00:00Z",
        "23:50:09",
        "2026-11-20T23:50:09Z[UTC]",
        "2026-11-20T23:50:09+99:99",
        "1e9",
        "1.2.3",
        "-",
        ".",
        "NaN",
        "inf",
        "99999999999999999999",
        "0000-01-01T00:00:00Z",
        "-000001-01-01T00:00:00Z",
    ];
    for text in bad {
        let error = created_at(&json!(text)).unwrap_err();
        assert_eq!(
            error,
            format!(
                "created_at must be a time like 2026-01-31T12:00:00Z, or a unix time, in the years 1 to 9999, not {text:?}"
            )
        );
    }
    for (value, what) in
        [(json!(true), "a boolean"), (json!([]), "an array"), (json!({}), "an object")]
    {
        let error = created_at(&value).unwrap_err();
        assert_eq!(
            error,
            format!(
                "created_at must be a time like 2026-01-31T12:00:00Z, or a unix time, not {what}"
            )
        );
    }
    for number in [json!(i64::MAX), json!(u64::MAX), json!(1e300), json!(i64::MIN)] {
        assert!(
            created_at(&number).unwrap_err().contains("in the years 1 to 9999, not "),
            "{number}"
        );
    }
}

#[test]
fn silence_and_null_are_not_the_same() {
    let now = Time::from_micros(5);
    let message: Message =
        read_value(&json!({"parts": [], "completed_at": null}), Rules::Lenient).unwrap();
    assert_eq!(
        (message.created_at, message.completed_at),
        (OptionalTime::Absent, OptionalTime::Null)
    );
    assert_eq!((message.created_at.or(now), message.completed_at.or(now)), (Some(now), None));
    assert_eq!(OptionalTime::from(Some(now)).or(Time::from_micros(6)), Some(now));
    assert_eq!(OptionalTime::from(None), OptionalTime::Null);
}

#[test]
fn a_time_out_of_range_becomes_the_nearest() {
    let written =
        |micros| serde_json::to_value(OptionalTime::At(Time::from_micros(micros))).unwrap();
    assert_eq!(written(i64::MIN), "0001-01-01T00:00:00Z");
    assert_eq!(written(i64::MAX), "9999-12-30T22:00:00Z");
    for micros in [i64::MIN, i64::MAX, 0, -1] {
        let time = Time::from_micros(micros);
        assert_eq!(Time::parse(&time.to_string()), Some(time));
    }
}

#[test]
fn a_uuid_is_read_in_every_form_and_version_and_written_in_one() {
    let canonical = "2a4496e1-b907-4b65-9cec-2ae5658024fe";
    let forms = [
        canonical,
        "2A4496E1-B907-4B65-9CEC-2AE5658024FE",
        "2a4496e1b9074b659cec2ae5658024fe",
        "{2a4496e1-b907-4b65-9cec-2ae5658024fe}",
        "urn:uuid:2a4496e1-b907-4b65-9cec-2ae5658024fe",
    ];
    let run = |id: &str| {
        let value = json!({"run_id": id, "agent_name": "a", "status": "created", "created_at": 0});
        read_value::<Run>(&value, Rules::Lenient)
            .map(|run| run.run_id)
            .map_err(|violation| violation.to_string())
    };
    for form in forms {
        let id = run(form).unwrap();
        assert_eq!(id.to_string(), canonical, "{form}");
        assert_eq!(serde_json::to_value(id).unwrap(), json!(canonical));
        assert_eq!(Uuid::from(uuid_of(id)), id);
    }
    for any in ["00000000-0000-0000-0000-000000000000", "01890a5d-ac96-774b-bcce-b302099a8057"] {
        assert_eq!(run(any).unwrap().to_string(), any);
    }
    for bad in
        ["", "abc", "2a4496e1-b907-4b65-9cec-2ae5658024f", "2a4496e1-b907-4b65-9cec-2ae5658024fg"]
    {
        assert_eq!(run(bad), Err(format!("run_id must be a UUID, not {bad:?}")));
    }
}

fn uuid_of(id: Uuid) -> uuid::Uuid {
    id.into()
}
