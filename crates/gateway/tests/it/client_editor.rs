//! A rig's socket for editors.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use trilogue_domain::{AgentName, Principal, Result};
use trilogue_gateway::{ClientProtocol, Wrap, WrapCommand};
use trilogue_runtime::Runtime;
pub(crate) use trilogue_testkit::Editor;
use trilogue_testkit::parts;

use crate::agent::Puppet;
use crate::rig::Rig;

pub(crate) struct EditorSocket {
    folder: TempDir,
}

/// Creates puppet agents from commands.
#[derive(Debug)]
struct Puppeteer(Runtime);

#[async_trait]
impl Wrap for Puppeteer {
    async fn wrap(&self, command: WrapCommand) -> Result<AgentName> {
        let name = AgentName::parse(command.name.as_deref().unwrap_or("wrapped"))?;
        self.0.register(Arc::new(Puppet::with_name(name.as_str())))?;
        Ok(name)
    }
}

impl EditorSocket {
    pub(crate) fn in_name_of(rig: &Rig, tenant: &str, principal: &str) -> Self {
        Self::for_principal(rig, parts::principal(tenant, principal))
    }

    pub(crate) fn for_principal(rig: &Rig, principal: Principal) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("server.sock")).unwrap();
        let wrap = Arc::new(Puppeteer(rig.runtime.clone()));
        let protocol = ClientProtocol::new(rig.client.clone(), wrap);
        rig.server.listen_local(listener, &protocol, principal).unwrap();
        Self { folder }
    }

    /// Lets every user of the machine reach the socket.
    pub(crate) fn open_to_everybody(&self) -> PathBuf {
        let socket = self.folder.path().join("server.sock");
        for (path, mode) in [(self.folder.path(), 0o755), (&socket, 0o666)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        socket
    }

    pub(crate) async fn stream(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("server.sock")).await.unwrap()
    }

    /// Sends this first line, and returns the reply.
    pub(crate) async fn hello(&self, hello: &Value) -> (Value, Editor) {
        let mut stream = self.stream().await;
        stream.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
        let (reader, writer) = stream.into_split();
        let mut editor = Editor::from_streams(reader, writer);
        let line = editor.line().await.unwrap();
        (serde_json::from_str(&line).unwrap(), editor)
    }

    /// An editor that has sent nothing yet.
    pub(crate) async fn editor(&self, agent: &str) -> Editor {
        let hello = json!({"trilogue": 1, "attach": {"agent": agent}});
        let (welcome, editor) = self.hello(&hello).await;
        assert_eq!(welcome["agent"], agent, "{welcome}");
        editor
    }

    /// An editor without capabilities.
    pub(crate) async fn plain(&self, agent: &str) -> Editor {
        self.with(agent, json!({})).await
    }

    pub(crate) async fn with(&self, agent: &str, capabilities: Value) -> Editor {
        let mut editor = self.editor(agent).await;
        editor.initialize(capabilities).await;
        editor
    }

    /// A plain editor with a new session.
    pub(crate) async fn open_session(&self, agent: &str) -> (Editor, String) {
        self.open_session_with(agent, json!({})).await
    }

    pub(crate) async fn open_session_with(&self, agent: &str, can: Value) -> (Editor, String) {
        let mut editor = self.with(agent, can).await;
        let session = editor.session().await;
        (editor, session)
    }

    /// A plain editor that has loaded a session.
    pub(crate) async fn load_session(&self, agent: &str, session: &str) -> Editor {
        let mut editor = self.plain(agent).await;
        editor.load(session).await;
        editor
    }

    /// A program that an editor launched, which can resume at its position after its connection broke.
    pub(crate) async fn numbered(&self, agent: &str) -> Editor {
        self.numbered_as(agent, "me").await
    }

    pub(crate) async fn numbered_as(&self, agent: &str, client: &str) -> Editor {
        self.numbered_with(agent, client, json!({})).await
    }

    pub(crate) async fn numbered_with(&self, agent: &str, client: &str, can: Value) -> Editor {
        let attach = json!({"agent": agent});
        let hello = json!({"trilogue": 1, "attach": attach, "numbered": true, "client": client});
        let (welcome, mut editor) = self.hello(&hello).await;
        assert!(welcome["life"].is_string(), "{welcome}");
        assert!(welcome["max_line"].as_u64().is_some_and(|most| most >= 1024), "{welcome}");
        assert!(welcome["max_sent"].as_u64() > welcome["max_line"].as_u64(), "{welcome}");
        editor.initialize(can).await;
        editor
    }
}
