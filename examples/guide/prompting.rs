use std::path::Path;

use trilogue_sdk::agent_client::{
    Attachment, Client, Command, Error, Options, Prompt, RejectAll, SessionOptions, Speaker,
};

/// Asks an agent about a file, and gives the messages that it answers with.
pub(crate) async fn explain(
    agent: Command,
    folder: &str,
    file: &Path,
) -> Result<Vec<String>, Error> {
    let client = Client::launch(agent, RejectAll, Options::default()).await?;
    let session = client.new_session(SessionOptions::new(folder)).await?;

    let question = Prompt::from("What is this?").attach(Attachment::read(file).await?);
    let (ended, messages) = session.prompt(question).await?.collect().await?;
    if let Some(id) = ended.user_message_id {
        // The agent recorded the question and recognises it by this id later.
        assert!(session.user_messages().canonical(&id).is_some());
    }
    client.close().await;

    let answers = messages.into_vec().into_iter();
    let answers = answers.filter(|message| message.speaker == Speaker::Agent);
    Ok(answers.map(|message| message.text()).collect())
}

/// Takes a folder, a file in it, and the command of an agent.
#[tokio::main]
#[expect(clippy::print_stdout, reason = "the answers are what was asked for")]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(file), Some(program)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(Error::Invalid("usage: prompting FOLDER FILE COMMAND…".to_owned()));
    };
    let agent = Command::new(program).args(arguments);
    for answer in explain(agent, &folder, Path::new(&file)).await? {
        println!("{answer}");
    }
    Ok(())
}
