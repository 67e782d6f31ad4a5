use trilogue_sdk::context::Run;
use trilogue_sdk::prelude::*;

pub(crate) struct Linter;

#[async_trait]
impl Agent for Linter {
    fn card(&self) -> Card {
        Card::chat("linter", "Takes spaces at line ends out of a file.").version("1.0.0")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let Some(editor) = context.editor() else {
            context.text("There is no editor here whose files I could work with.").await?;
            return Ok(Outcome::Completed);
        };
        let path = turn.text();
        let text = editor.read_text_file(&path).await?;
        let trimmed: Vec<&str> = text.lines().map(str::trim_end).collect();

        let call = context.tool("trim", "Trimming lines", json!({ "path": path })).await?;
        editor.write_text_file(&path, trimmed.join("\n") + "\n").await?;
        call.complete(json!({ "lines": trimmed.len() })).await?;

        if editor.has_terminals() {
            let terminal = editor.run(Run::command("git").args(["diff", "--stat"])).await?;
            terminal.wait().await?;
            context.text(terminal.output().await?.text).await?;
            terminal.release().await?;
        }
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Linter, trilogue::ServeOptions::from_args()?).await
}
