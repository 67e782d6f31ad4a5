//! Launched agents.

use std::time::{Duration, Instant};

use trilogue_sdk::agent_client::{Client, Command, Error, Options, RejectAll};

use super::LONG;

/// Answers `initialize`, starts a background process, prints its id, and then runs `then`.
fn agent(then: &str) -> Command {
    let script = format!(
        r#"read hello
echo "some noise"
printf '{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":1,"agentInfo":{{"name":"sh","version":"%s"}}}}}}\n' "$MARK"
sleep 600 >/dev/null 2>&1 </dev/null &
echo "started $!" >&2
{then}"#
    );
    Command::new("sh").args(["-c", &script]).env("MARK", "7")
}

fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next();
    !matches!(state, None | Some('Z' | 'X'))
}

async fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < LONG, "it did not come to that");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn launched(then: &str) -> (Client, String) {
    let options = Options { exit_grace: Duration::from_millis(300), ..Options::default() };
    let client = Client::launch(agent(then), RejectAll, options).await.unwrap();
    until(|| client.stderr_tail().ends_with('\n')).await;
    let stray = client.stderr_tail().trim().rsplit(' ').next().unwrap().to_owned();
    assert!(is_alive(&stray));
    (client, stray)
}

#[tokio::test]
async fn nothing_of_a_launched_agent_is_left_whether_it_listens_or_not() {
    let (client, stray) = launched("read rest").await;
    assert_eq!(client.agent().agent_info.as_ref().unwrap().version, "7");
    client.close().await;
    until(|| !is_alive(&stray)).await;

    let (client, stray) = launched("trap '' TERM; while :; do sleep 600; done").await;
    client.close().await;
    until(|| !is_alive(&stray)).await;

    let (client, stray) = launched("read rest").await;
    drop(client);
    until(|| !is_alive(&stray)).await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_started_or_leaves_at_once_is_an_error() {
    let refused = Client::launch(Command::new("/nonexistent"), RejectAll, Options::default()).await;
    assert!(matches!(refused, Err(Error::Launch { program, .. }) if program == "/nonexistent"));
    let leaves = Command::new("sh").args(["-c", "exit 3"]);
    let refused = Client::launch(leaves, RejectAll, Options::default()).await;
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}
