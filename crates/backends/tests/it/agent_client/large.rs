//! What is large: it is logged as it came up to a line's length, nothing behind it is lost, and no run fails of it.

use serde_json::Value;
use trilogue_domain::event::{ToolEvent, ToolStatus};
use trilogue_domain::{Body, RunStatus};

use super::rig::Rig;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_large_update_is_logged_as_it_came() {
    let rig = Rig::new(&["--heard", "{store}-heard"]).await;
    let thread = rig.thread().await;
    for (kind, bytes) in [("text", 2 * MIB), ("tool", 2 * MIB), ("think", MIB), ("plan", 10 * MIB)]
    {
        let run = rig.run(&thread, &format!("large:{kind}:{bytes}\nsay:behind it")).await;
        assert_eq!(run.status, RunStatus::Completed, "{kind}: {:?}", run.outcome);
        let originals = rig.originals(&run).await;
        let large = originals.iter().find(|original| original.len() > bytes).unwrap();
        let update: Value = serde_json::from_str(large).unwrap();
        let member = match kind {
            "tool" => &update["update"]["content"][0]["content"]["text"],
            "plan" => &update["update"]["entries"][0]["content"],
            _ => &update["update"]["content"]["text"],
        };
        assert_eq!(member.as_str().unwrap(), "ä".repeat(bytes / 2), "{kind}");
        assert!(rig.said(&run).await.ends_with("behind it"), "{kind}");
        assert!(rig.custom(&run, "update_too_large").await.is_empty(), "{kind}");
    }
    rig.end().await;
}

#[tokio::test]
async fn what_is_larger_than_that_is_logged_as_far_as_it_can_be() {
    let rig = Rig::with(&[], |launch| launch.max_line_bytes = 64 * MIB).await;
    let thread = rig.thread().await;
    for kind in ["text", "tool", "plan"] {
        let bytes = 18 * MIB;
        let run = rig.run(&thread, &format!("large:{kind}:{bytes}\nsay:behind it")).await;
        assert_eq!(run.status, RunStatus::Completed, "{kind}: {:?}", run.outcome);
        let messages = rig.messages(&run).await;
        assert_eq!(messages.last().unwrap().text(), "behind it");
        let gaps = rig.custom(&run, "update_too_large").await;
        match kind {
            "text" => assert_eq!(messages[0].text(), "ä".repeat(bytes / 2)),
            "tool" => {
                let events = rig.events(&run).await;
                let ended = events.iter().filter(|event| {
                    let Body::Tool(ToolEvent::Ended { status, .. }) = &event.body else {
                        return false;
                    };
                    *status == ToolStatus::Completed
                });
                assert_eq!(ended.count(), 1);
            }
            _ => assert_eq!(gaps.len(), 1),
        }
    }
    rig.end().await;
}
