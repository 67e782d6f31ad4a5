use std::fmt::Debug;

use proptest::prelude::*;
use trilogue_domain::{
    CheckpointKey, InterruptKind, Reference, Rights, Role, RunId, RunKey, RunStatus, StartedBy,
    ThreadId, ThreadKey, Timestamp,
};

use super::*;
use crate::fixtures;
use crate::record::samples;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn thread() -> ThreadRow {
    ThreadRow {
        metadata: samples::json("{\"a\": \"ä\"}"),
        created_at: at(1),
        updated_at: at(2),
        head: Some(CheckpointKey(3)),
        epoch: 4,
        ephemeral: true,
        ..fixtures::thread_row(ThreadKey(1), "default", "t")
    }
}

fn run(status: RunStatus) -> RunRow {
    RunRow {
        status,
        created_at: at(1),
        started_at: Some(at(2)),
        outcome: samples::outcomes().into_iter().find(|outcome| outcome.status() == status),
        base: Some(CheckpointKey(i64::MAX)),
        config: Some(samples::json("{\"style\":\"short\"}")),
        saved: Some(samples::json("[1,2]")),
        pending_answer: Some(samples::interrupt_id("i")),
        not_before: Some(at(i64::MIN)),
        last_run_number: u64::MAX,
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
        ..bare_run()
    }
}

fn child_run() -> RunRow {
    let run = RunId::parse("p").unwrap();
    let thread = ThreadId::parse("q").unwrap();
    RunRow { parent: Some(ParentRun { run, thread }), ..bare_run() }
}

fn passed_on_run() -> RunRow {
    let provenance = Provenance { trace: Some("t".to_owned()), hops: vec!["h".to_owned()] };
    RunRow { provenance: Some(Box::new(provenance)), ..bare_run() }
}

fn bare_run() -> RunRow {
    fixtures::run_row(&thread(), RunKey(2), "r")
}

fn token() -> TokenRow {
    let row = fixtures::token_row("default", "k", Rights::all());
    TokenRow { own: true, created_at: at(1), expires_at: Some(at(2)), ..row }
}

fn message(role: Role) -> MessageRow {
    let row = fixtures::message_row(&thread(), RunKey(2), "m");
    MessageRow { role, position: 300, ..row }
}

fn message_with_alias() -> MessageRow {
    MessageRow { alias: Some(samples::message_id("a")), ..message(Role::Agent) }
}

fn interrupt() -> InterruptRow {
    let interrupt = samples::interrupt(InterruptKind::Permission);
    InterruptRow { interrupt, ..fixtures::interrupt_row(&bare_run(), "i") }
}

fn checkpoint() -> CheckpointRow {
    CheckpointRow {
        parent: Some(CheckpointKey(4)),
        run: Some(RunKey(2)),
        position: 12,
        value: Some(samples::json("{\"messages\":[]}")),
        created_at: at(1),
        ..fixtures::checkpoint_row(ThreadKey(1), CheckpointKey(5), "c")
    }
}

fn binding() -> BindingRow {
    BindingRow { last_seen: Some(CheckpointKey(5)), ..fixtures::binding_row(ThreadKey(1), "s") }
}

fn configuration() -> ConfigurationRow {
    ConfigurationRow {
        name: Some("formal".to_owned()),
        config: samples::json("{\"style\":\"formal\"}"),
        created_at: at(1),
        updated_at: at(2),
        expires_at: Some(at(3)),
        ..fixtures::configuration_row("default", "k")
    }
}

/// The row can be read back, and every damage to its bytes is detected.
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
    check(&message_with_alias());
    check(&checkpoint());
    check(&CheckpointRow { parent: None, run: None, value: None, ..checkpoint() });
    check(&CheckpointRow { client_history: Some(samples::client_history()), ..checkpoint() });
    check(&CheckpointRow {
        client_history: Some(trilogue_domain::ClientHistory::default()),
        ..checkpoint()
    });
    check(&bare_run());
    check(&child_run());
    check(&passed_on_run());
    check(&RunRow { parent: child_run().parent, ..passed_on_run() });
    check(&RunRow { mount: Some("/connect".into()), ..bare_run() });
    check(&RunRow { started_by: Some(StartedBy::Agent), ..bare_run() });
    check(&RunRow {
        audit: Some(samples::audit(trilogue_domain::RequestSource::LocalSocket)),
        ..bare_run()
    });
    check(&RunRow { mount: Some("/connect".into()), ..passed_on_run() });
    check(&configuration());
    check(&ConfigurationRow { name: None, expires_at: None, ..configuration() });
    check(&interrupt());
    for resolution in samples::resolutions() {
        let resolved_at = Some(at(9));
        check(&InterruptRow { resolution: Some(resolution), resolved_at, ..interrupt() });
    }
    check(&binding());
    check(&fixtures::idempotency_row(&bare_run(), "key"));
    let message = Some(samples::message_id("m"));
    check(&IdempotencyRow { message, ..fixtures::idempotency_row(&bare_run(), "key") });
    check(&token());
    for kind in [
        QueueKind::ScheduledRun,
        QueueKind::Deadline,
        QueueKind::Callback,
        QueueKind::Retention,
        QueueKind::Notify,
    ] {
        check(&fixtures::queue_item(&thread(), kind, "r/1", at(5)));
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
    let with_history =
        CheckpointRow { client_history: Some(samples::client_history()), ..checkpoint() };
    for (bytes, expected) in [
        (
            thread().encode(),
            "01010201740764656661756c7405616c6963650b7b2261223a2022c3a4227d02040106046e6f64650401d0f3940b",
        ),
        (
            run(RunStatus::Failed).encode(),
            "01020401720201740764656661756c7405616c696365046563686f050201040001010c6167656e745f6661696c65640869742062726f6b650001027b7d01feffffffffffffffff01027b7d01117b227374796c65223a2273686f7274227d01055b312c325d010101690001ffffffffffffffffff01ffffffffffffffffff010106737472696374011868747470733a2f2f6578616d706c652e636f6d2f686f6f6b010001010b7b22696e707574223a317d01010f72756e5f726f6c6c65645f6261636bf3e511dd",
        ),
        (
            with_history.encode(),
            "01040a016302010801040c010f7b226d65737361676573223a5b5d7d02010400016d030174016d010172021f68747470733a2f2f6578616d706c652e636f6d2f7265736f75726365732f31011968747470733a2f2f6578616d706c652e636f6d2f73746174651481044f",
        ),
        (
            configuration().encode(),
            "010a016b0764656661756c7405616c696365046563686f0106666f726d616c127b227374796c65223a22666f726d616c227d027b7d02040106c46253d5",
        ),
        (message_with_alias().encode(), "0103016d0764656661756c74020401ac02010161c36d465f"),
    ] {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }
}

/// References to messages had no thread in the first version.
#[test]
fn a_history_of_the_first_version_is_read() {
    let hex = "01040a016302010801040c010f7b226d65737361676573223a5b5d7d02010300016d010172021f68747470733a2f2f6578616d706c652e636f6d2f7265736f75726365732f31011968747470733a2f2f6578616d706c652e636f6d2f7374617465c1ae3d94";
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
    let mut history = samples::client_history();
    history.entries.retain(|entry| !matches!(entry, Reference::Message { thread: Some(_), .. }));
    let expected = CheckpointRow { client_history: Some(history), ..checkpoint() };
    assert_eq!(CheckpointRow::decode(&bytes), Ok(expected));
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
        kind in 1_u8..11, fields in proptest::collection::vec(any::<u8>(), 0..256),
    ) {
        let mut bytes = vec![FORMAT_VERSION, kind];
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
