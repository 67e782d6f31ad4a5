//! Replaces the ids of an agent's messages that another message of the thread already has.

use std::collections::HashMap;

use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, ToolEvent};
use trilogue_domain::{Body, MessageId, Role};
use trilogue_mapping::replacement_id;
use trilogue_runtime::RunContext;

/// The maximum number of messages of a turn whose ids are remembered. A full map is cleared: the store has the older ids by then.
const MAX_REMEMBERED: usize = 4096;

/// Maps the ids of a turn's messages at their server to their ids here.
#[derive(Debug, Default)]
pub(super) struct RemoteIds(HashMap<MessageId, MessageId>);

/// The ids of a message whose id was replaced: its own at the server, and the one here.
#[derive(Debug)]
pub(super) struct ReplacedId {
    pub(super) own: MessageId,
    pub(super) here: MessageId,
}

// === impl RemoteIds ===

impl RemoteIds {
    /// Replaces the id of a message in each of its events, if another message has the id. Returns the two ids for the first event of the message.
    /// Errors: those of reading the store.
    pub(super) async fn replace_taken(
        &mut self,
        body: &mut Body,
        context: &RunContext,
    ) -> Result<Option<ReplacedId>> {
        let begins = matches!(body, Body::Message(MessageEvent::Started { .. }));
        let message = match body {
            Body::Message(message) => message.message_mut(),
            // A tool call names a message that has already begun, and never begins one.
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

    /// Chooses the id here for a message that has none in this turn yet, or that begins again.
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
        // The message has no start event in this turn: an earlier turn of the run began it, or it is a thought, which has events only for its
        // pieces.
        if context.has_message(&replacement).await? {
            context
                .continue_message(&replacement, &Role::NamedAgent(context.agent().as_str().into()));
            return Ok(replacement);
        }
        Ok(if context.is_taken(own).await? { replacement } else { own.clone() })
    }
}
