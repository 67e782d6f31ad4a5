//! Keeps slow responses alive.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use trilogue_domain::Error;
use trilogue_domain::error::Result;

use super::body::ReplyBody;
use super::reply::Reply;

/// How long a response can take before its head is sent, and the time between keep-alive bytes after that.
const PATIENCE: Duration = Duration::from_secs(10);
/// A line break: whitespace before JSON is allowed.
const SIGN_OF_LIFE: Bytes = Bytes::from_static(b"\n");

/// A response in preparation.
pub(crate) type Making = Pin<Box<dyn Future<Output = Result<Reply>> + Send>>;

/// Waits for a JSON response. After 10 s without one, sends the head with status 200, and then a line break every 10 s until the body follows, so that proxies keep the connection open. For a later error, or a response without content (`None`), `late` returns the body.
/// Errors: those of the response, if they occur in time.
pub(crate) async fn with_signs_of_life(
    making: Making,
    late: impl FnOnce(Option<&Error>) -> Bytes + Send + 'static,
) -> Result<Reply> {
    with_signs_of_life_for(PATIENCE, making, late).await
}

async fn with_signs_of_life_for(
    patience: Duration,
    mut making: Making,
    late: impl FnOnce(Option<&Error>) -> Bytes + Send + 'static,
) -> Result<Reply> {
    if let Ok(made) = tokio::time::timeout(patience, &mut making).await {
        return made;
    }
    let begun = Some((making, late, true));
    let pieces = stream::unfold(begun, move |waiting| async move {
        let (mut making, late, is_first) = waiting?;
        if is_first {
            return Some((Ok(SIGN_OF_LIFE), Some((making, late, false))));
        }
        match tokio::time::timeout(patience, &mut making).await {
            Err(_) => Some((Ok(SIGN_OF_LIFE), Some((making, late, false)))),
            Ok(Err(error)) => Some((Ok(late(Some(&error))), None)),
            Ok(Ok(reply)) if reply.status() == StatusCode::NO_CONTENT => {
                Some((Ok(late(None)), None))
            }
            Ok(Ok(reply)) => {
                let body = reply.into_response().into_body().collect().await;
                Some((body.map(http_body_util::Collected::to_bytes), None))
            }
        }
    });
    Ok(Reply::new(StatusCode::OK, ReplyBody::pieces(pieces))
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json")))
}

#[cfg(test)]
mod tests {
    use trilogue_domain::Code;

    use super::*;

    const SHORT: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn an_answer_in_time_is_itself() {
        let making: Making = Box::pin(async { Ok(Reply::no_content()) });
        let reply = with_signs_of_life(making, |_| Bytes::new()).await.unwrap();
        assert_eq!(reply.status(), StatusCode::NO_CONTENT);
        let making: Making = Box::pin(async { Err(Error::new(Code::RunNotFound, "x")) });
        let refused = with_signs_of_life(making, |_| Bytes::new()).await;
        assert_eq!(refused.unwrap_err().code(), Code::RunNotFound);
    }

    /// Completes a response after two line breaks. Returns the whole body.
    async fn made_late(answer: Result<Reply>) -> String {
        let (done, is_done) = tokio::sync::oneshot::channel();
        let making: Making = Box::pin(async { is_done.await.unwrap() });
        let late =
            |error: Option<&Error>| Bytes::from(error.map_or("none", |it| it.code().as_str()));
        let reply = with_signs_of_life_for(SHORT, making, late).await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK);
        let mut body = reply.into_response().into_body();
        for _ in 0..2 {
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(piece, SIGN_OF_LIFE);
        }
        done.send(answer).unwrap();
        let rest = body.collect().await.unwrap().to_bytes();
        String::from_utf8(rest.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_late_answer_follows_blank_space() {
        let body = made_late(Ok(Reply::json_bytes(StatusCode::OK, &b"{}"[..]))).await;
        assert_eq!(body.trim_start(), "{}");
        let body = made_late(Err(Error::new(Code::RunNotFound, "x"))).await;
        assert_eq!(body.trim_start(), "run_not_found");
        assert_eq!(made_late(Ok(Reply::no_content())).await.trim_start(), "none");
    }
}
