//! Ids that an agent uses again after a restart.

use std::collections::HashSet;

use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, MessageId, RunStatus};
use uuid::Uuid;

use super::rig::{Rig, text_of, until};

#[tokio::test]
async fn no_two_messages_of_a_thread_have_one_id_whatever_their_agent_counts() {
    for how in ["--load", "--resume"] {
        let rig = Rig::new(&[how, "--store", "{store}", "--ids", "counter"]).await;
        let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
        let find = async |id: &str| {
            let id = MessageId::parse(id).unwrap();
            rig.store.message_in(row.key, &id).await.unwrap().unwrap()
        };
        let mut runs = Vec::new();
        for _ in 0..3 {
            let run = rig.run(&rig.thread, "two").await;
            assert_eq!(run.status, RunStatus::Completed);
            // The updates for the client have the id by which the message is found.
            let begun = rig.started_message_ids(&run).await;
            let told: Vec<_> = rig.originals(&run).await;
            for id in &begun {
                let named = format!(r#""messageId":"{id}""#);
                assert_eq!(told.iter().filter(|told| told.contains(&named)).count(), 2, "{told:?}");
                let found = find(id).await;
                assert_eq!((found.id.as_str(), found.run), (&**id, run.key));
            }
            runs.push(begun);
            let end = rig.run(&rig.thread, "crash").await;
            assert_eq!(end.status, RunStatus::Failed);
            until("the child is gone", || rig.children.count() == 0).await;
        }
        assert_eq!(runs[0], ["m1", "m2"]);
        assert!(runs[1..].iter().flatten().all(|id| Uuid::parse_str(id).is_ok()), "{runs:?}");
        // The agent knows the later messages by its own ids, and the first keeps its id.
        assert_eq!(find(&runs[1][0]).await.alias.unwrap().as_str(), "m1");
        assert_eq!(find("m1").await.alias, None);

        let log = rig.log(&rig.thread).await;
        let begun = log.iter().filter_map(|event| match &event.body {
            Body::Message(MessageEvent::Started { message, .. }) => Some(message.clone()),
            _ => None,
        });
        let begun: Vec<_> = begun.collect();
        assert_eq!(begun.iter().collect::<HashSet<_>>().len(), begun.len());
        let own = log.iter().filter_map(|event| event.original.as_ref()).map(text_of);
        assert_eq!(own.filter(|told| told.contains(r#""messageId":"m1""#)).count(), 2);
        rig.end().await;
    }
}
