//! `trilogue serve`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use trilogue::config::{self, Mount, Options, Setting};
use trilogue::local::{LocalListener, StartedBy};

use crate::command::globals::Globals;
use crate::command::probe::{self, ProbeFinding, Severity};
use crate::command::server_command::{Overrides, ServerPlace};
use crate::terminal::exit::{CliError, Result};
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

/// Start the server that a configuration file describes.
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The configuration file. An empty one is valid.
    #[arg(long, value_name = "FILE", env = "TRILOGUE_CONFIG")]
    config: PathBuf,
    /// Check and explain the configuration without starting a server. It also looks for the agents' programs, folders and addresses.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    overrides: Overrides,
}

// === impl Serve ===

impl Serve {
    pub(crate) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let loaded = config::load(&self.config)?;
        let mut options = loaded.options;
        let flags = self.overrides.apply(&mut options);
        if self.check {
            trilogue::check(&options)?;
            config::check(&options)?;
            let file = Some((self.config.as_path(), loaded.lines.as_slice()));
            let mounts = options.mounts_in_force()?;
            let settings = config::settings(&options, file, &flags);
            let mut found = probe::agents(&options).await;
            found.extend(probe::limits(&options, None));
            found.extend(probe::secrets(&options));
            found.extend(probe::cluster(&options));
            found.extend(probe::notify(&options).await);
            found.extend(probe::listeners(&options));
            found.retain(|finding| finding.severity != Severity::Ok);
            return explain(&options, &mounts, &settings, &found, globals);
        }
        if options.agents.is_empty() {
            print::note("warning: no agent is configured");
            print::hint("add one, for example: [agents.echo] with kind = \"builtin\"");
        }
        let mut local_listener = LocalListener::open(&options.server, StartedBy::Serve);
        local_listener.set_config(&self.config);
        let place = ServerPlace { local_listener, log_file: None, any_port: false };
        self.overrides
            .serve(&options, place, globals.json, |app| {
                let lines: String = app
                    .addresses()
                    .iter()
                    .map(|address| format!("listening: http://{address}\n"))
                    .collect();
                print::out(&lines)
            })
            .await
            .map_err(name_file(&self.config))
    }
}

/// Adds the file whose setting is wrong to an error.
fn name_file(file: &std::path::Path) -> impl Fn(CliError) -> CliError {
    let file = file.display().to_string();
    move |error| {
        if error.exit != crate::terminal::exit::ExitStatus::Usage {
            return error;
        }
        CliError { message: format!("{file}: {}", error.message).into(), ..error }
    }
}

fn explain(
    options: &Options,
    mounts: &[Mount],
    settings: &[Setting],
    found: &[ProbeFinding],
    globals: &Globals,
) -> Result {
    let overrides = config::overrides(options);
    if globals.json {
        let settings: Vec<_> = settings
            .iter()
            .map(|setting| {
                let origin = setting.origin.to_string();
                json!({ "key": setting.key, "value": setting.value, "origin": origin })
            })
            .collect();
        let mounts: Vec<_> = mounts
            .iter()
            .map(|mount| {
                json!({
                    "protocol": mount.protocol.as_str(),
                    "prefix": shown_prefix(mount),
                    "strict": mount.strict,
                    "as_documented": mount.as_documented,
                    "require_interrupt_id": mount.require_interrupt_id,
                })
            })
            .collect();
        return print::json(
            &json!({ "settings": settings, "mounts": mounts, "overrides": overrides, "findings": found }),
        );
    }
    let rows = settings.iter().map(|setting| {
        [&setting.key, &setting.value, &setting.origin.to_string()]
            .map(|it| safe::line(it))
            .to_vec()
    });
    let rows: Vec<_> = rows.collect();
    let columns = ["SETTING", "VALUE", "FROM"].map(TableColumn::text);
    print::table(&columns, &rows)?;
    for mount in mounts {
        let prefix = shown_prefix(mount);
        let mode = match (mount.strict, mount.as_documented) {
            (true, _) => "strict",
            (false, true) => "as documented",
            (false, false) => "compatible",
        };
        let ids = if mount.require_interrupt_id {
            ", answers to permissions need the interrupt's id"
        } else {
            ""
        };
        print::note(&format!("{} is served at {prefix} ({mode}{ids})", mount.protocol));
    }
    for key in overrides {
        print::note(&format!("override in force: {key}"));
    }
    found.iter().for_each(ProbeFinding::note);
    print::note("the configuration is valid");
    Ok(())
}

fn shown_prefix(mount: &Mount) -> String {
    Some(mount.path()).filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned())
}
