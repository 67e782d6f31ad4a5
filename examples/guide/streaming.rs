use trilogue_sdk::prelude::*;

pub(crate) struct Weather;

#[async_trait]
impl Agent for Weather {
    fn card(&self) -> Card {
        Card::chat("weather", "Tells the weather.")
            .version("1.0.0")
            .writes(["text/plain", "text/csv"])
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        context.thought("I need a forecast.").await?;
        let call =
            context.tool("forecast", "Asking for the forecast", json!({ "days": 1 })).await?;
        call.complete(json!({ "celsius": 21 })).await?;

        // Words of one message, as they come.
        for word in ["Tomorrow ", "it ", "will ", "be "] {
            context.text(word).await?;
        }
        // These words, and where they come from.
        context.cite("21 degrees", Source::url("https://weather.example.org/")).await?;
        context.text(".").await?;
        // A part with a name is an artifact.
        context.artifact("forecast.csv", Part::text("day,celsius\n1,21\n")).await?;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Weather, trilogue::ServeOptions::from_args()?).await
}
