//! Callbacks, sent to a real receiver.

use bytes::Bytes;
use http::StatusCode;
use trilogue_domain::{DeliveryId, Timestamp};
use trilogue_egress::{Client, Policy};
use trilogue_gateway::CallbackSecrets;
use trilogue_gateway::callback::{Callback, Sender, sign};
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::parts::principal;

fn callback(url: String) -> Callback {
    Callback {
        id: DeliveryId::parse("msg_p5jXN8AQM9LWM0D4loKWxJek").unwrap(),
        url,
        owner: (&principal("alpha", "alice")).into(),
        body: Bytes::from_static(br#"{"test": 2432232314}"#),
    }
}

fn sender(policy: Policy, secrets: &[&[u8]]) -> Sender {
    let client = Client::new(policy, trilogue_egress::Options::default()).unwrap();
    Sender::new(client, callback_secrets(secrets))
}

fn callback_secrets(secrets: &[&[u8]]) -> CallbackSecrets {
    CallbackSecrets::new(secrets.iter().map(|secret| Bytes::copy_from_slice(secret)))
}

#[tokio::test]
async fn a_receiver_can_verify_what_it_gets_under_either_secret() {
    let receiver = Receiver::start().await.unwrap();
    let now = Timestamp::from_micros(1_614_265_330_999_999);
    let callback = callback(receiver.url());
    sender(Policy::local(), &[b"old", b"new"]).send(&callback, now).await.unwrap();
    let delivery = &receiver.deliveries()[0];
    let header = |name: &str| delivery.headers[name].to_str().unwrap();
    assert_eq!(header("webhook-timestamp"), "1614265330");
    assert_eq!(header("webhook-id"), callback.id.as_str());
    for secret in [&b"old"[..], b"new"] {
        let key = callback_secrets(&[secret]).keys(&callback.owner, &callback.url)[0];
        let expected = sign(&key, header("webhook-id"), 1_614_265_330, &delivery.body);
        assert!(header("webhook-signature").split(' ').any(|signature| signature == expected));
        let server = sign(secret, header("webhook-id"), 1_614_265_330, &delivery.body);
        assert!(
            !header("webhook-signature").contains(&server),
            "the server's secret signs nothing"
        );
    }
    let key = callback_secrets(&[b"old"]).keys(&callback.owner, &callback.url)[0];
    let other = sign(&key, header("webhook-id"), 1_614_265_331, &delivery.body);
    assert!(!header("webhook-signature").contains(&other));
}

#[tokio::test]
async fn what_a_receiver_answers_decides_whether_to_try_again() {
    let receiver = Receiver::start().await.unwrap();
    let sender = sender(Policy::local(), &[b"key"]);
    let now = Timestamp::from_micros(0);
    for (status, retry) in [
        (StatusCode::SERVICE_UNAVAILABLE, true),
        (StatusCode::FOUND, true),
        (StatusCode::GONE, false),
    ] {
        receiver.answer_next([status]);
        let undelivered = sender.send(&callback(receiver.url()), now).await.unwrap_err();
        assert_eq!(undelivered.retry, retry, "{undelivered}");
    }
    assert_eq!(receiver.deliveries().len(), 3);
}

#[tokio::test]
async fn ssrf_through_a_callback_address_is_refused_and_not_tried_again() {
    let receiver = Receiver::start().await.unwrap();
    let sender = sender(Policy::default(), &[b"key"]);
    let undelivered =
        sender.send(&callback(receiver.url()), Timestamp::from_micros(0)).await.unwrap_err();
    assert!(!undelivered.retry && undelivered.reason.contains("loopback"), "{undelivered}");
    assert!(receiver.deliveries().is_empty());
}

#[test]
fn signatures_are_those_of_the_standard() {
    let secret = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    );
    let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    let signature = sign(&secret.unwrap(), id, 1_614_265_330, br#"{"test": 2432232314}"#);
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}
