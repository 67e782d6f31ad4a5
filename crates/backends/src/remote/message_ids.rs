//! Ids of an agent's messages: one that names another message of the thread already is replaced.

use std::collections::HashMap;

use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, ToolEvent};
use trilogue_domain::{Body, MessageId, Role};
use trilogue_mapping::replacement_id;
use trilogue_runtime::RunContext;

/// For how many messages of a turn the ids are remembered. By then the store has the oldest.
const MAX_REMEMBERED: usize = 4096;

/// The ids that messages of a turn have at their server, with those that they have here.
#[derive(Debug, Default)]
pub(super) struct RemoteIds(HashMap<MessageId, MessageId>);

/// A message that got another id than its own.
#[derive(Debug)]
pub(super) struct ReplacedId {
    pub(super) own: MessageId,
    pub(super) here: MessageId,
}

// === impl RemoteIds ===

impl RemoteIds {
    /// Replaces the id of a message if it is taken, in all events of the message. Returns the two ids with the first of them.
    /// Fails as reading the store.
    pub(super) async fn replace_taken(
        &mut self,
        body: &mut Body,
        context: &RunContext,
    ) -> Result<Option<ReplacedId>> {
        let begins = matches!(body, Body::Message(MessageEvent::Started { .. }));
        let message = match body {
            Body::Message(message) => message.message_mut(),
            // A call names a message that has begun.
            Body::Tool(ToolEvent::Started { message: Some(message), .. }) => {
                if let Some(here) = self.0.get(message) {
                    *message = here.clone();
                }
                None
            }
            _ => None,
        };
        let Some(message) = message else { return Ok(None) };
        if let Some(here) = self.0.get(message).filter(|_| !begins) {
            *message = here.clone();
            return Ok(None);
        }
        let own = message.clone();
        let here = self.id_here(&own, context, begins).await?;
        if self.0.len() >= MAX_REMEMBERED {
            self.0.clear();
        }
        self.0.insert(own.clone(), here.clone());
        *message = here.clone();
        Ok((own != here).then_some(ReplacedId { own, here }))
    }

    /// The id here of a message that this turn has no id for yet, or that begins once more.
    async fn id_here(
        &self,
        own: &MessageId,
        context: &RunContext,
        begins: bool,
    ) -> Result<MessageId> {
        let replacement = replacement_id(context.run().as_str(), own);
        if begins && self.0.contains_key(own) {
            let is_used = self.0.values().any(|here| *here == replacement);
            return Ok(if is_used { MessageId::generate() } else { replacement });
        }
        if begins {
            return Ok(if context.is_taken(own).await? { replacement } else { own.clone() });
        }
        // A message that an earlier turn of the run began, or a thought, whose pieces alone are events.
        if context.has_message(&replacement).await? {
            context
                .continue_message(&replacement, &Role::NamedAgent(context.agent().as_str().into()));
            return Ok(replacement);
        }
        Ok(if context.is_taken(own).await? { replacement } else { own.clone() })
    }
}
