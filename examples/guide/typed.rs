use serde::{Deserialize, Serialize};
use trilogue_sdk::prelude::*;

pub(crate) struct Planner;

/// A trip to plan.
#[derive(Deserialize, JsonSchema)]
struct Trip {
    /// Where to.
    city: String,
    /// How many days it may take.
    days: usize,
}

/// One sight for each day.
#[derive(Serialize, JsonSchema, Default)]
struct Plan {
    sights: Vec<&'static str>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(default)]
struct Taste {
    outdoors: bool,
}

#[derive(Serialize, JsonSchema)]
struct UnknownCity {
    city: String,
}

impl AgentFault for UnknownCity {
    const CODE: &'static str = "unknown_city";
    const DESCRIPTION: &'static str = "The city is not on the map.";
}

#[async_trait]
impl Agent for Planner {
    fn card(&self) -> Card {
        Card::typed::<Trip, Plan>("planner", "Plans trips.")
            .version("1.0.0")
            .config(schema_of::<Taste>())
            .fault::<UnknownCity>()
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let Turn::Start { input } = turn else { return Ok(Outcome::Completed) };
        let Trip { city, days } = input.parse()?;
        let Taste { outdoors } = context.config()?;
        let mut plan = Plan::default();
        for sight in sights(&city, outdoors)?.into_iter().take(days) {
            plan.sights.push(sight);
            context.output_so_far(&plan).await?;
        }
        context.result(&plan).await?;
        Ok(Outcome::Completed)
    }
}

fn sights(city: &str, outdoors: bool) -> Result<[&'static str; 2], UnknownCity> {
    match (city, outdoors) {
        ("Paris", true) => Ok(["The Seine", "The Luxembourg Garden"]),
        ("Paris", false) => Ok(["The Louvre", "The Orsay Museum"]),
        _ => Err(UnknownCity { city: city.to_owned() }),
    }
}

#[tokio::main]
async fn main() -> Result<(), trilogue::Error> {
    trilogue::serve(Planner, trilogue::ServeOptions::from_args()?).await
}
