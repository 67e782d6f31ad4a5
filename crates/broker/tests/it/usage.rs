use trilogue_broker::{BrokerOptions, Dialect, PriceTable, RequestUsage, TokenCounts};

use crate::fixtures::{TestBroker, local};
use crate::provider::{
    Provider, ReceivedRequest, event_response, json_response, post, unchunk, with_placeholder,
};

/// Sends a request to a provider. Returns its response and usage, and what the provider has received.
async fn exchange(
    dialect: Dialect,
    (path, body): (&str, &str),
    response: String,
) -> (String, RequestUsage, ReceivedRequest) {
    let mut provider = Provider::start(response).await;
    let prices = PriceTable::parse("date\t2026-01-01\nm\t1\t10\t0.1\t1.25\n").unwrap();
    let options = BrokerOptions { prices, ..local() };
    let mut broker = TestBroker::start_with(options, provider.access(dialect)).await;
    let response = broker.exchange(post(path, &with_placeholder(), body)).await;
    (response, broker.usage().await, provider.request().await)
}

fn counts(input: u64, output: u64, cached_read: u64, cache_write: u64) -> Option<TokenCounts> {
    Some(TokenCounts { input, output, cached_read, cache_write })
}

#[tokio::test]
async fn each_dialect_reports_usage_in_one_piece_and_in_a_stream() {
    use Dialect::{Anthropic, Gemini, OpenAi, Unknown};
    let anthropic = r#"{"model":"m-2026","usage":{"input_tokens":100,"output_tokens":20,"cache_read_input_tokens":30,"cache_creation_input_tokens":40}}"#;
    let chat = r#"{"model":"m-2026","usage":{"prompt_tokens":130,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":30}}}"#;
    let responses = r#"{"model":"m-2026","usage":{"input_tokens":130,"output_tokens":20,"input_tokens_details":{"cached_tokens":30}}}"#;
    let gemini = r#"{"modelVersion":"m-2026","usageMetadata":{"promptTokenCount":130,"candidatesTokenCount":15,"thoughtsTokenCount":5,"cachedContentTokenCount":30}}"#;
    let anthropic_events = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-2026\",\"usage\":{\"input_tokens\":100,\"output_tokens\":1,\"cache_read_input_tokens\":30,\"cache_creation_input_tokens\":40}}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":11}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let responses_events = format!(
        "event: response.created\ndata: {{\"type\":\"response.created\",\"response\":{{\"model\":\"m-2026\",\"usage\":null}}}}\n\nevent: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{responses}}}\n\n"
    );
    let gemini_events = format!(
        "data: {{\"modelVersion\":\"m-2026\",\"usageMetadata\":{{\"promptTokenCount\":130}}}}\r\n\r\ndata: {gemini}\r\n\r\n"
    );
    let gemini_array = format!("[{{\"usageMetadata\":{{\"promptTokenCount\":130}}}},\n{gemini}]");
    let openai_tokens = counts(100, 20, 30, 0);
    for (dialect, path, response, tokens, cost) in [
        (Anthropic, "/v1/messages", json_response(anthropic), counts(100, 20, 30, 40), Some(353)),
        (
            Anthropic,
            "/v1/messages",
            event_response(anthropic_events),
            counts(100, 20, 30, 40),
            Some(353),
        ),
        (OpenAi, "/v1/chat/completions", json_response(chat), openai_tokens, Some(303)),
        (OpenAi, "/v1/responses", json_response(responses), openai_tokens, Some(303)),
        (OpenAi, "/v1/responses", event_response(&responses_events), openai_tokens, Some(303)),
        (Gemini, "/v1/models/m:generateContent", json_response(gemini), openai_tokens, Some(303)),
        (
            Gemini,
            "/v1/models/m:streamGenerateContent?alt=sse",
            event_response(&gemini_events),
            openai_tokens,
            Some(303),
        ),
        (
            Gemini,
            "/v1/models/m:streamGenerateContent",
            json_response(&gemini_array),
            openai_tokens,
            Some(303),
        ),
        (Unknown, "/v1/x", json_response(anthropic), None, None),
    ] {
        let (received, usage, _) = exchange(dialect, (path, "{}"), response.clone()).await;
        // Unchanged, apart from the framing.
        let body = |response: &str| match response.contains("transfer-encoding: chunked") {
            true => unchunk(response),
            false => response.split_once("\r\n\r\n").unwrap().1.to_owned(),
        };
        assert_eq!(body(&received), body(&response), "{path}");
        let expected = RequestUsage {
            key: "API_KEY".to_owned(),
            model: (dialect != Unknown).then(|| "m-2026".to_owned()),
            status: 200,
            tokens,
            cost_micros: cost,
            is_complete: true,
        };
        assert_eq!(usage, expected, "{path}");
    }
}

#[tokio::test]
async fn a_streamed_chat_is_asked_for_usage_in_the_place_of_the_client() {
    let shown =
        "data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n";
    let last = "data: {\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\n";
    let events = format!("{shown}{last}data: [DONE]\n\n");
    let path = "/v1/chat/completions";
    let body = r#"{"model":"m","stream":true,"messages":[],"x":1.50}"#;
    let (response, usage, request) =
        exchange(Dialect::OpenAi, (path, body), event_response(&events)).await;
    let added = r#"{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[],"x":1.50}"#;
    assert_eq!(String::from_utf8(request.body).unwrap(), added);
    assert_eq!(unchunk(&response), format!("{shown}data: [DONE]\n\n"));
    assert_eq!((usage.tokens, usage.is_complete), (counts(5, 2, 0, 0), true));

    // A client that has asked gets the answer.
    let body = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;
    let (response, usage, request) =
        exchange(Dialect::OpenAi, (path, body), event_response(&events)).await;
    assert_eq!(String::from_utf8(request.body).unwrap(), body);
    assert_eq!(unchunk(&response), events);
    assert_eq!(usage.tokens, counts(5, 2, 0, 0));
}

#[tokio::test]
async fn what_cannot_be_counted_passes_and_is_unknown() {
    let large = format!("{{\"usage\":{{\"input_tokens\":1}},\"x\":\"{}\"}}", "a".repeat(1_100_000));
    let long_event = format!("data: {large}\n\n");
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#;
    let overloaded = json_response(error).replace("200 OK", "529 Overloaded");
    let negative = r#"{"usage":{"input_tokens":-1,"output_tokens":"3"}}"#;
    for (response, status) in [
        (json_response(&large), 200),
        (event_response(&long_event), 200),
        (overloaded, 529),
        (json_response(negative), 200),
        (json_response("no JSON"), 200),
        (event_response("data: no JSON\n\nno event"), 200),
    ] {
        let whole = ("/v1/messages", "{}");
        let (received, usage, _) = exchange(Dialect::Anthropic, whole, response.clone()).await;
        assert!(received.starts_with(&format!("HTTP/1.1 {status}")), "{received}");
        assert!(received.len() >= response.len() / 2);
        assert_eq!((usage.status, usage.tokens, usage.cost_micros), (status, None, None));
        assert!(usage.is_complete);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_not_complete() {
    let begin =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let event = "data: {\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":9}}}\n\n";
    let response = format!("{begin}{:x}\r\n{event}\r\n", event.len());
    let (received, usage, _) = exchange(Dialect::Anthropic, ("/v1/messages", "{}"), response).await;
    assert!(received.contains(event), "{received}");
    assert_eq!((usage.tokens, usage.is_complete), (counts(9, 0, 0, 0), false));
}
