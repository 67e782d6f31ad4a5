//! `echo` returns the parts of each message.

use std::sync::Arc;

use trilogue_backends::builtin::Echo;
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{Citation, Part, PartMetadata};

use super::{start, turn};

#[tokio::test]
async fn each_message_comes_back_with_its_parts_unchanged() {
    let cited = PartMetadata::Citation(Citation { start_index: Some(0), ..Citation::default() });
    let input = vec![
        vec![Part::text("one"), Part::bytes("image/png", vec![1, 2]).with_name("a.png")],
        vec![],
        vec![Part::url("audio/wav", "https://example.org/a.wav").with_metadata(cited)],
    ];
    let recorder = Arc::new(Recorder::default());
    turn(&Echo, &recorder, None, start(input.clone())).await.unwrap();
    let said: Vec<_> = recorder.messages().into_iter().map(|message| message.parts).collect();
    assert_eq!(said, input);
    assert!(recorder.messages().iter().all(|message| message.completed_at.is_some()));
}
