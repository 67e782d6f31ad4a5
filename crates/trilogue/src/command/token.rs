//! `trilogue token`.

use std::time::SystemTime;

use clap::{Args, Subcommand, ValueEnum};
use trilogue::config::Span;
use trilogue_sdk::client::Client;
use trilogue_wire::native::{LoginApproval, RightName, TokenCreate};

use super::PageArguments;
use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::table::TableColumn;
use crate::terminal::{ask, print, safe};

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
    /// Approve the code that `trilogue login` shows on another machine: its program gets a token.
    Approve(Approve),
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
    #[command(flatten)]
    scope: TokenScope,
}

#[derive(Args, Debug)]
struct Approve {
    /// The code.
    code: String,
    /// A name for people; by default the one of the other machine.
    #[arg(long)]
    label: Option<String>,
    /// Approve without a question.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    scope: TokenScope,
}

/// What a token may do.
#[derive(Args, Debug)]
struct TokenScope {
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
            TokenAction::Approve(approve) => approve.execute(&client, globals).await,
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
        Ok(TokenCreate {
            label: self.label.clone(),
            principal: self.scope.principal.clone(),
            rights: self.scope.rights(),
            own: self.scope.own,
            expires_at: self.scope.expires_at()?,
        })
    }
}

// === impl Approve ===

impl Approve {
    async fn execute(&self, client: &Client, globals: &Globals) -> Result {
        let approval = LoginApproval {
            code: self.code.clone(),
            label: self.label.clone(),
            principal: self.scope.principal.clone(),
            rights: self.scope.rights(),
            own: self.scope.own,
            expires_at: self.scope.expires_at()?,
        };
        let login = client.login(&self.code).await?;
        // The name comes last, so that it cannot pass for an address.
        let program = match &login.address {
            Some(address) => format!("the program at {}", safe::visible(address)),
            None => "a program on this machine".to_owned(),
        };
        let label = safe::visible(&login.label);
        let question = format!("give a token to {program}, which calls itself '{label}'?");
        if !self.yes && !ask::confirm(&question, "--yes").await? {
            print::note("nothing was approved");
            return Ok(());
        }
        let token = client.approve_login(&approval).await?;
        if globals.json {
            return print::json(&token);
        }
        print::note(&format!("approved: the program gets the token {}", safe::line(&token.id)));
        Ok(())
    }
}

// === impl TokenScope ===

impl TokenScope {
    fn rights(&self) -> Option<Vec<RightName>> {
        let rights = || self.rights.iter().map(|right| (*right).into()).collect();
        (!self.rights.is_empty()).then(rights)
    }

    fn expires_at(&self) -> Result<Option<String>> {
        Ok(match self.expires {
            None => None,
            Some(span) => {
                let late = || CliError::usage("--expires is too far in the future");
                let at = SystemTime::now().checked_add(span.0).ok_or_else(late)?;
                Some(jiff::Timestamp::try_from(at).map_err(|_| late())?.to_string())
            }
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
