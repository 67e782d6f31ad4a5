//! Agents in a sandbox without a network of their own: their only way out is the broker, and it has the key of their model.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use trilogue_testkit::model::{Model, Step};
use trilogue_testkit::{Folder, Home, ServerOptions};

use super::DONE;
use super::adapter::Adapter;
use super::coding_agent::CodingAgent;
use crate::{events, run_of};

const PROMPT: &str = "please answer through the broker.";
/// The address of the broker in the network of an agent.
const BROKER: &str = "http://127.0.0.1:3128";

/// How an agent takes the key and the address of its model.
struct ModelKey {
    variable: &'static str,
    base_url: &'static str,
    header: &'static str,
    dialect: &'static str,
    /// The address to which the agent adds the paths of its dialect.
    url: String,
}

async fn check(agent: CodingAgent) {
    if let Some(why) = agent.why_missing() {
        eprintln!("NOT CHECKED: {}: {why}", agent.name());
        return;
    }
    let dir = Folder::new().unwrap();
    let answered = answer_through_broker(agent, dir.path()).await;
    answered.unwrap_or_else(|error| panic!("{agent:?}: {error:#}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_reaches_its_model_through_the_broker_alone() {
    check(CodingAgent::Adapter(Adapter::Claude)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_reaches_its_model_through_the_broker_alone() {
    check(CodingAgent::Adapter(Adapter::Codex)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini_reaches_its_model_through_the_broker_alone() {
    check(CodingAgent::Gemini).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qwen_reaches_its_model_through_the_broker_alone() {
    check(CodingAgent::Qwen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fast_agent_reaches_its_model_through_the_broker_alone() {
    check(CodingAgent::FastAgent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copilot_reaches_its_model_through_the_broker_alone() {
    check(CodingAgent::Copilot).await;
}

fn key_of(agent: CodingAgent, model: &Model) -> Result<ModelKey> {
    let key = |variable, base_url, header, dialect, url| ModelKey {
        variable,
        base_url,
        header,
        dialect,
        url,
    };
    let openai = |variable, base_url| key(variable, base_url, "bearer", "openai", model.url());
    Ok(match agent {
        CodingAgent::Adapter(Adapter::Claude) => {
            key("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "x-api-key", "anthropic", model.origin())
        }
        // Its address is in a file.
        CodingAgent::Adapter(Adapter::Codex) => openai("LOCAL_KEY", "LOCAL_BASE_URL"),
        CodingAgent::Gemini => key(
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
            "x-goog-api-key",
            "gemini",
            model.origin(),
        ),
        CodingAgent::Qwen => openai("OPENAI_API_KEY", "OPENAI_BASE_URL"),
        CodingAgent::FastAgent => openai("GENERIC_API_KEY", "GENERIC_BASE_URL"),
        CodingAgent::Copilot => openai("COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BASE_URL"),
        CodingAgent::OpenCode => anyhow::bail!("its settings have the key itself"),
    })
}

async fn answer_through_broker(agent: CodingAgent, dir: &Path) -> Result<()> {
    let (model, name) = (Model::start().await?, agent.name());
    let (own, cwd) = (dir.join("own"), dir.join("work"));
    fs::create_dir_all(&own)?;
    fs::create_dir_all(&cwd)?;
    let file = own.join("key");
    fs::write(&file, "the-key-of-the-operator")?;
    let key = key_of(agent, &model)?;
    let table = format!("[agents.{name}]\n");
    let mut settings = agent.settings(&own, &cwd, &model)?;
    ensure!(settings.contains(&table), "{settings}");
    settings = settings.replacen(&table, &format!("{table}network = [\"no.example\"]\n"), 1);
    settings.push_str(&format!(
        "[agents.{name}.keys.{}]\nfrom = \"file:{}\"\nurl = \"{}\"\nbase_url = \"{}\"\nheader = \"{}\"\ndialect = \"{}\"\n",
        key.variable,
        file.display(),
        key.url,
        key.base_url,
        key.header,
        key.dialect
    ));
    let config = own.join(name).join("config.toml");
    if let Ok(text) = fs::read_to_string(&config) {
        let through_broker = format!("{BROKER}/keys/{}", key.variable);
        fs::write(config, text.replace(&model.url(), &through_broker))?;
    }
    model.script(PROMPT, [Step::text(DONE)]);
    let options = ServerOptions { settings, ..ServerOptions::default() };
    fs::create_dir_all(dir.join("server"))?;
    let server = Home::new(&dir.join("server"), &options)?.start().await?;
    let client = server.client();
    let run =
        client.post("/api/v1/runs", &run_of(name, "t", &json!(PROMPT), "wait")).await?.ok()?;
    ensure!(run["status"] == "completed", "{run}\n{}", server.home().log_end());
    ensure!(run["output"].to_string().contains(DONE), "{run}");
    let events = events(&client, "t").await?;
    let of_kind = |kind: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["kind"] == kind).map(|event| &event["data"]).collect()
    };
    let through_key = of_kind("network_connection");
    let is_of_model = |data: &&Value| data["key"] == key.variable && data["outcome"] == "listed";
    ensure!(through_key.iter().any(is_of_model), "{through_key:?}");
    let usage = of_kind("model_usage");
    let request = usage.iter().find(|data| data["status"] == 200).context("no request")?;
    ensure!(request["output_tokens"].as_u64() > Some(0), "{usage:?}");
    server.stop().await?;
    Ok(())
}
