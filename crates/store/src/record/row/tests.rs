use std::fmt::Debug;

use proptest::prelude::*;
use trilogue_domain::{
    CheckpointKey, InterruptKind, Rights, Role, RunKey, RunStatus, ThreadKey, Timestamp,
};

use super::*;
use crate::record::samples;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn thread() -> ThreadRow {
    ThreadRow {
        key: ThreadKey(1),
        id: samples::thread_id("t"),
        tenant: samples::tenant("default"),
        owner: samples::principal("p"),
        metadata: samples::json("{\"a\": \"ä\"}"),
        created_at: at(1),
        updated_at: at(2),
        head: Some(CheckpointKey(3)),
        owner_node: "node".to_owned(),
        epoch: 4,
        ephemeral: true,
    }
}

fn run(status: RunStatus) -> RunRow {
    RunRow {
        key: RunKey(2),
        id: samples::run_id("r"),
        thread: ThreadKey(1),
        thread_id: samples::thread_id("t"),
        tenant: samples::tenant("default"),
        principal: samples::principal("p"),
        agent: samples::agent("echo"),
        status,
        created_at: at(1),
        started_at: Some(at(2)),
        ended_at: None,
        outcome: samples::outcomes().into_iter().find(|outcome| outcome.status() == status),
        base: Some(CheckpointKey(i64::MAX)),
        metadata: samples::json("{}"),
        config: Some(samples::json("{\"style\":\"short\"}")),
        saved: Some(samples::json("[1,2]")),
        has_turn: true,
        pending_answer: Some(samples::interrupt_id("i")),
        ever_resolved: false,
        not_before: Some(at(i64::MIN)),
        last_run_number: u64::MAX,
        rules: None,
        callback: None,
        request: None,
        stateless: false,
        cancel_reason: None,
    }
}

fn token() -> TokenRow {
    TokenRow {
        id: samples::token_id("k"),
        label: "laptop".to_owned(),
        hash: [7; 32],
        tenant: samples::tenant("default"),
        principal: samples::principal("p"),
        rights: Rights::all(),
        own: true,
        created_at: at(1),
        expires_at: Some(at(2)),
    }
}

fn message(role: Role) -> MessageRow {
    MessageRow {
        id: samples::message_id("m"),
        tenant: samples::tenant("default"),
        thread: ThreadKey(1),
        run: RunKey(2),
        role,
        position: 300,
        alias: None,
    }
}

/// A message that its agent knows by another id.
fn also_known() -> MessageRow {
    MessageRow { alias: Some(samples::message_id("a")), ..message(Role::Agent) }
}

fn queue(kind: QueueKind) -> QueueItem {
    QueueItem {
        kind,
        key: "r/1".to_owned(),
        due: at(5),
        tenant: samples::tenant("default"),
        principal: samples::principal("p"),
        thread: Some(ThreadKey(1)),
        reference: samples::json("{\"n\":1}"),
    }
}

fn interrupt() -> InterruptRow {
    InterruptRow {
        interrupt: samples::interrupt(InterruptKind::Permission),
        tenant: samples::tenant("default"),
        principal: samples::principal("p"),
        thread: ThreadKey(1),
        thread_id: samples::thread_id("t"),
        run: RunKey(2),
        run_id: samples::run_id("r"),
        agent: samples::agent("echo"),
        raised_at: at(1),
        resolution: None,
        resolved_at: None,
    }
}

fn idempotency() -> IdempotencyRow {
    IdempotencyRow {
        key: IdempotencyKey {
            tenant: samples::tenant("default"),
            principal: samples::principal("p"),
            agent: samples::agent("echo"),
            text: "key".to_owned(),
        },
        request: [9; 32],
        run: samples::run_id("r"),
        thread: ThreadKey(1),
        created_at: at(1),
    }
}

fn checkpoint() -> CheckpointRow {
    CheckpointRow {
        key: CheckpointKey(5),
        id: samples::checkpoint_id("c"),
        thread: ThreadKey(1),
        parent: Some(CheckpointKey(4)),
        run: Some(RunKey(2)),
        position: 12,
        value: Some(samples::json("{\"messages\":[]}")),
        created_at: at(1),
        given: None,
    }
}

fn binding() -> BindingRow {
    BindingRow {
        thread: ThreadKey(1),
        agent: samples::agent("echo"),
        remote: "s".to_owned(),
        capabilities: samples::json("{}"),
        told: Some(CheckpointKey(5)),
    }
}

/// A run of which everything that version 3 brought is there.
fn called_back() -> RunRow {
    RunRow {
        rules: Some("strict".into()),
        callback: Some(Callback {
            url: "https://example.com/hook".into(),
            status: true,
            values: false,
            updates: true,
        }),
        request: Some(samples::json("{\"input\":1}")),
        stateless: true,
        cancel_reason: Some(trilogue_domain::Code::RunRolledBack),
        ..run(RunStatus::Failed)
    }
}

fn configuration() -> ConfigurationRow {
    ConfigurationRow {
        id: trilogue_domain::ConfigurationId::parse("k").unwrap(),
        tenant: samples::tenant("default"),
        owner: samples::principal("p"),
        agent: samples::agent("echo"),
        name: Some("formal".to_owned()),
        config: samples::json("{\"style\":\"formal\"}"),
        metadata: samples::json("{}"),
        created_at: at(1),
        updated_at: at(2),
        expires_at: Some(at(3)),
    }
}

/// The row reads back, and every damage to its bytes is noticed.
fn check<R: Record + PartialEq + Debug>(row: &R) {
    let bytes = row.encode();
    assert_eq!(R::decode(&bytes).as_ref(), Ok(row));
    for length in 0..bytes.len() {
        assert!(R::decode(&bytes[..length]).is_err(), "cut at {length}");
    }
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1 << bit;
            let error = R::decode(&flipped).unwrap_err();
            assert_eq!(error.code(), Code::ThreadQuarantined, "bit {bit} of byte {index}");
        }
    }
}

#[test]
fn every_row_reads_back_and_shows_damage() {
    check(&thread());
    for status in RunStatus::ALL {
        check(&run(status));
    }
    for role in [Role::User, Role::Agent, Role::NamedAgent("x".into())] {
        check(&message(role));
    }
    check(&also_known());
    check(&checkpoint());
    check(&CheckpointRow { parent: None, run: None, value: None, ..checkpoint() });
    check(&CheckpointRow { given: Some(samples::given()), ..checkpoint() });
    check(&CheckpointRow { given: Some(trilogue_domain::Given::default()), ..checkpoint() });
    check(&RunRow { rules: Some("strict".into()), ..run(RunStatus::Queued) });
    check(&called_back());
    check(&configuration());
    check(&ConfigurationRow { name: None, expires_at: None, ..configuration() });
    check(&interrupt());
    for resolution in samples::resolutions() {
        let resolved_at = Some(at(9));
        check(&InterruptRow { resolution: Some(resolution), resolved_at, ..interrupt() });
    }
    check(&binding());
    check(&idempotency());
    check(&token());
    for kind in [
        QueueKind::ScheduledRun,
        QueueKind::Deadline,
        QueueKind::Callback,
        QueueKind::Retention,
        QueueKind::Notify,
    ] {
        check(&queue(kind));
    }
}

#[test]
fn a_row_of_another_kind_or_version_is_refused() {
    assert!(TokenRow::decode(&thread().encode()).is_err());
    let mut bytes = thread().encode();
    bytes.truncate(bytes.len() - super::super::codec::CHECKSUM_BYTES);
    for version in [0, FORMAT_VERSION + 1] {
        bytes[0] = version;
        let mut sealed = bytes.clone();
        put_checksum(&mut sealed);
        assert_eq!(ThreadRow::decode(&sealed).unwrap_err().code(), Code::ThreadQuarantined);
    }
}

/// A failure here means that the format changed: give it a new version and keep the decoder of this one.
#[test]
fn the_bytes_of_a_row_are_these() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        hex(thread().encode()),
        "04010201740764656661756c7401700b7b2261223a2022c3a4227d02040106046e6f6465040120a72109"
    );
    assert_eq!(
        hex(called_back().encode()),
        "04020401720201740764656661756c740170046563686f050201040001010c6167656e745f6661696c65640869742062726f6b650001027b7d01feffffffffffffffff01027b7d01117b227374796c65223a2273686f7274227d01055b312c325d010101690001ffffffffffffffffff01ffffffffffffffffff010106737472696374011868747470733a2f2f6578616d706c652e636f6d2f686f6f6b010001010b7b22696e707574223a317d01010f72756e5f726f6c6c65645f6261636b8b8a5a7a"
    );
    assert_eq!(
        hex(CheckpointRow { given: Some(samples::given()), ..checkpoint() }.encode()),
        "04040a016302010801040c010f7b226d65737361676573223a5b5d7d02010300016d010172021f68747470733a2f2f6578616d706c652e636f6d2f7265736f75726365732f31011968747470733a2f2f6578616d706c652e636f6d2f7374617465fd880cfd"
    );
    assert_eq!(
        hex(configuration().encode()),
        "040a016b0764656661756c740170046563686f0106666f726d616c127b227374796c65223a22666f726d616c227d027b7d02040106a87fdfcb"
    );
    assert_eq!(hex(also_known().encode()), "0403016d0764656661756c74020401ac020101618a440ab5");
}

/// The bytes are what version 3 wrote, and stay.
#[test]
fn rows_of_version_3_are_read() {
    let stored = bytes(
        "03020401720201740764656661756c740170046563686f050201040001010c6167656e745f6661696c65640869742062726f6b650001027b7d01feffffffffffffffff01027b7d01117b227374796c65223a2273686f7274227d01055b312c325d010101690001ffffffffffffffffff01ffffffffffffffffff010106737472696374011868747470733a2f2f6578616d706c652e636f6d2f686f6f6b010001010b7b22696e707574223a317d01010f72756e5f726f6c6c65645f6261636bfd245912",
    );
    assert_eq!(RunRow::decode(&stored), Ok(called_back()));
    let stored = bytes("0303016d0764656661756c74020401ac022755cdef");
    assert_eq!(MessageRow::decode(&stored), Ok(message(Role::Agent)));
    let stored = bytes(
        "030a016b0764656661756c740170046563686f0106666f726d616c127b227374796c65223a22666f726d616c227d027b7d020401065c4a26bf",
    );
    assert_eq!(ConfigurationRow::decode(&stored), Ok(configuration()));
}

/// The bytes are what version 2 wrote, and stay.
#[test]
fn rows_of_version_2_are_read() {
    let stored = bytes(
        "02010201740764656661756c7401700b7b2261223a2022c3a4227d02040106046e6f646504011111ec85",
    );
    assert_eq!(ThreadRow::decode(&stored), Ok(thread()));
    let stored = bytes(
        "02020401720201740764656661756c740170046563686f050201040001010c6167656e745f6661696c65640869742062726f6b650001027b7d01feffffffffffffffff01027b7d01117b227374796c65223a2273686f7274227d01055b312c325d010101690001ffffffffffffffffff01ffffffffffffffffff010106737472696374d0fb5e0a",
    );
    let strict = RunRow { rules: Some("strict".into()), ..run(RunStatus::Failed) };
    assert_eq!(RunRow::decode(&stored), Ok(strict));
    let stored = bytes(
        "02040a016302010801040c010f7b226d65737361676573223a5b5d7d02010300016d010172021f68747470733a2f2f6578616d706c652e636f6d2f7265736f75726365732f31011968747470733a2f2f6578616d706c652e636f6d2f73746174657a61894f",
    );
    let brought = CheckpointRow { given: Some(samples::given()), ..checkpoint() };
    assert_eq!(CheckpointRow::decode(&stored), Ok(brought));
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// The bytes are what version 1 wrote, and stay.
#[test]
fn rows_of_version_1_are_read() {
    let stored = bytes(
        "01010201740764656661756c7401700b7b2261223a2022c3a4227d02040106046e6f6465040171f17c41",
    );
    assert_eq!(ThreadRow::decode(&stored), Ok(thread()));
    let stored = bytes(
        "01020401720201740764656661756c740170046563686f050201040001010c6167656e745f6661696c65640869742062726f6b650001027b7d01feffffffffffffffff01027b7d01117b227374796c65223a2273686f7274227d01055b312c325d010101690001ffffffffffffffffff01ffffffffffffffffff01a7fd1e62",
    );
    assert_eq!(RunRow::decode(&stored), Ok(run(RunStatus::Failed)));
    let stored = bytes("01040a016302010801040c010f7b226d65737361676573223a5b5d7d02a87782ce");
    assert_eq!(CheckpointRow::decode(&stored), Ok(checkpoint()));
}

proptest! {
    #[test]
    fn text_and_numbers_read_back(
        node in ".{0,20}", epoch in any::<u64>(), created in any::<i64>(), head in any::<Option<i64>>(),
    ) {
        let row = ThreadRow {
            owner_node: node,
            epoch,
            created_at: at(created),
            head: head.map(CheckpointKey),
            ..thread()
        };
        prop_assert_eq!(ThreadRow::decode(&row.encode()), Ok(row));
    }

    #[test]
    fn the_decoder_never_panics(
        version in 1_u8..=FORMAT_VERSION, kind in 1_u8..11, fields in proptest::collection::vec(any::<u8>(), 0..256),
    ) {
        let mut bytes = vec![version, kind];
        bytes.extend(fields);
        put_checksum(&mut bytes);
        let _ = ThreadRow::decode(&bytes);
        let _ = RunRow::decode(&bytes);
        let _ = MessageRow::decode(&bytes);
        let _ = CheckpointRow::decode(&bytes);
        let _ = InterruptRow::decode(&bytes);
        let _ = BindingRow::decode(&bytes);
        let _ = IdempotencyRow::decode(&bytes);
        let _ = TokenRow::decode(&bytes);
        let _ = QueueItem::decode(&bytes);
        let _ = ConfigurationRow::decode(&bytes);
    }
}
