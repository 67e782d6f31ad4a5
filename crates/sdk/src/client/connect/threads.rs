use super::{
    Client, Run, Thread, ThreadCreate, ThreadPatch, ThreadSearchRequest, ThreadState, fault,
};
use crate::client::{ClientError, Method};

// === impl Client ===

impl Client {
    /// Creates a thread.
    ///
    /// # Errors
    /// `thread_exists`, unless the request accepts an existing thread.
    pub async fn create_thread(&self, new: &ThreadCreate) -> Result<Thread, ClientError> {
        // The reference server fails without metadata.
        let metadata = new.metadata.clone().unwrap_or_default();
        let new = ThreadCreate { metadata: Some(metadata), ..new.clone() };
        self.post(&["threads"], &new).await
    }

    /// Returns the threads that match, newest first.
    pub async fn search_threads(
        &self,
        request: &ThreadSearchRequest,
    ) -> Result<Vec<Thread>, ClientError> {
        self.search(&["threads", "search"], request).await
    }

    /// Returns one thread with its state.
    pub async fn thread(&self, id: &str) -> Result<Thread, ClientError> {
        self.get(&["threads", id]).await
    }

    /// Changes a thread. Merges the metadata into the existing metadata. Values become a new checkpoint after the named checkpoint, or after the newest.
    ///
    /// # Errors
    /// `thread_not_found`, `checkpoint_not_found`, `thread_busy`, `thread_state_schema_violation`.
    pub async fn patch_thread(&self, id: &str, patch: &ThreadPatch) -> Result<Thread, ClientError> {
        self.patch(&["threads", id], patch).await
    }

    /// Copies a thread with its states, without its runs.
    pub async fn copy_thread(&self, id: &str) -> Result<Thread, ClientError> {
        self.fetch(self.call(Method::Post, &["threads", id, "copy"])).await
    }

    /// Removes a thread with all its data.
    ///
    /// # Errors
    /// `thread_not_found`, `thread_busy`.
    pub async fn delete_thread(&self, id: &str) -> Result<(), ClientError> {
        self.delete(&["threads", id]).await
    }

    /// Returns the states of a thread, newest first: at most `limit`, and only those before the checkpoint with this id.
    ///
    /// # Errors
    /// `thread_not_found`, `checkpoint_not_found`.
    pub async fn thread_history(
        &self,
        id: &str,
        limit: Option<u32>,
        before: Option<&str>,
    ) -> Result<Vec<ThreadState>, ClientError> {
        let limit = limit.map(|limit| limit.to_string());
        let call = self.call(Method::Get, &["threads", id, "history"]);
        self.list(call.query("limit", limit.as_deref()).query("before", before)).await
    }

    /// Returns the runs of a thread, newest first: at most `limit`, starting at `offset`.
    pub async fn thread_runs(
        &self,
        id: &str,
        limit: Option<u32>,
        offset: Option<u32>,
    ) -> Result<Vec<Run>, ClientError> {
        let (most, passed) = (limit.map(|it| it.to_string()), offset.map(|it| it.to_string()));
        let call = || self.call(Method::Get, &["threads", id, "runs"]);
        let paged = call().query("limit", most.as_deref()).query("offset", passed.as_deref());
        match self.list(paged).await {
            // The reference server returns all runs and accepts no limit.
            Err(error)
                if fault(&error).is_some_and(|it| it.rejects("limit") || it.rejects("offset")) =>
            {
                let runs: Vec<Run> = self.list(call()).await?;
                let (offset, limit) = (offset.unwrap_or(0), limit.unwrap_or(u32::MAX));
                Ok(runs.into_iter().skip(offset as usize).take(limit as usize).collect())
            }
            listed => listed,
        }
    }
}
