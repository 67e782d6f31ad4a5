//! `trilogue token`.

use std::time::SystemTime;

use clap::{Args, Subcommand, ValueEnum};
use trilogue::config::Span;
use trilogue_wire::native::{RightName, TokenCreate};

use super::PageArguments;
use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

/// Create, list or revoke tokens.
#[derive(Args, Debug)]
pub(crate) struct Token {
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Subcommand, Debug)]
enum TokenAction {
    /// Create a token and print its secret, which is shown only once.
    Create(Create),
    /// List the tokens.
    List(PageArguments),
    /// Revoke a token.
    Revoke {
        /// The token's id.
        id: String,
    },
}

#[derive(Args, Debug)]
struct Create {
    /// A name for people.
    #[arg(long)]
    label: String,
    /// Who acts with it; by default you. Tokens of one principal share what they own.
    #[arg(long)]
    principal: Option<String>,
    /// What it may do; by default read, run and answer.
    #[arg(long = "right", value_name = "RIGHT")]
    rights: Vec<Right>,
    /// Limit it to what its principal created.
    #[arg(long)]
    own: bool,
    /// When it expires, from now, such as 12h or 30d.
    #[arg(long, value_name = "DURATION")]
    expires: Option<Span>,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Right {
    /// See agents, threads, runs, events and interrupts.
    Read,
    /// Create and change threads and runs.
    Run,
    /// Answer interrupts.
    Answer,
    /// Create and revoke tokens, erase threads and redeliver callbacks, in one tenant.
    Admin,
    /// Back up the store of all tenants, and see the server's settings.
    Server,
}

// === impl Token ===

impl Token {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        match &self.action {
            TokenAction::Create(create) => {
                let created = client.create_token(&create.request()?).await?;
                if globals.json {
                    return print::json(&created);
                }
                print::note(&format!("token: {}", safe::line(&created.token.id)));
                print::out(&format!("{}\n", safe::line(&created.secret)))?;
                print::hint("keep the secret: it is not shown again");
                Ok(())
            }
            TokenAction::List(page) => {
                let tokens = client.tokens(&page.page()).await?;
                if globals.json {
                    return print::json(&tokens);
                }
                let columns = [
                    TableColumn::id("TOKEN"),
                    TableColumn::text("LABEL"),
                    TableColumn::text("PRINCIPAL"),
                    TableColumn::text("RIGHTS"),
                    TableColumn::text("SEES"),
                    TableColumn::time("EXPIRES"),
                ];
                let next = tokens.next.as_deref();
                page.print(&tokens.items, next, "no tokens", &columns, |token| {
                    let rights: Vec<_> = token.rights.iter().map(|right| name(*right)).collect();
                    let expires = token.expires_at.as_deref().unwrap_or("never");
                    let own = if token.own { "own" } else { "all" };
                    [&token.id, &token.label, &token.principal, &rights.join(","), own, expires]
                        .map(safe::line)
                        .to_vec()
                })
            }
            TokenAction::Revoke { id } => {
                let id = short_id::token(&client, id).await?;
                client.revoke_token(&id).await?;
                print::note(&format!("revoked: {}", safe::line(&id)));
                Ok(())
            }
        }
    }
}

// === impl Create ===

impl Create {
    fn request(&self) -> Result<TokenCreate> {
        let expires_at = match self.expires {
            None => None,
            Some(span) => {
                let late = || CliError::usage("--expires is too far in the future");
                let at = SystemTime::now().checked_add(span.0).ok_or_else(late)?;
                Some(jiff::Timestamp::try_from(at).map_err(|_| late())?.to_string())
            }
        };
        Ok(TokenCreate {
            label: self.label.clone(),
            principal: self.principal.clone(),
            rights: (!self.rights.is_empty())
                .then(|| self.rights.iter().map(|right| (*right).into()).collect()),
            own: self.own,
            expires_at,
        })
    }
}

impl From<Right> for RightName {
    fn from(right: Right) -> Self {
        match right {
            Right::Read => Self::Read,
            Right::Run => Self::Run,
            Right::Answer => Self::Answer,
            Right::Admin => Self::Admin,
            Right::Server => Self::Server,
        }
    }
}

fn name(right: RightName) -> &'static str {
    match right {
        RightName::Read => "read",
        RightName::Run => "run",
        RightName::Answer => "answer",
        RightName::Admin => "admin",
        RightName::Server => "server",
    }
}
