//! NAME: an agent of the Agent Client Protocol.

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, InitializeRequest, InitializeResponse, NewSessionRequest,
    NewSessionResponse, PromptRequest, PromptResponse, SessionNotification, SessionUpdate,
    StopReason,
};
use agent_client_protocol::{Agent, Result, Stdio, on_receive_request};

#[tokio::main]
async fn main() -> Result<()> {
    Agent
        .v1()
        .name("NAME")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _| {
                responder.respond(InitializeResponse::new(request.protocol_version))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _| {
                responder.respond(NewSessionResponse::new(uuid::Uuid::new_v4().to_string()))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client| {
                let texts = request.prompt.iter().filter_map(|block| match block {
                    ContentBlock::Text(text) => Some(text.text.as_str()),
                    _ => None,
                });
                let text = format!("You said: {}", texts.collect::<Vec<_>>().join("\n"));
                let chunk = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
                client.send_notification(SessionNotification::new(request.session_id, chunk))?;
                responder.respond(PromptResponse::new(StopReason::EndTurn))
            },
            on_receive_request!(),
        )
        .connect_to(Stdio::new())
        .await
}
