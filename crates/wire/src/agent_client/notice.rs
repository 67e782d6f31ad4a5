use super::object::object;
use crate::json::words::words;
use crate::json::{Path, Violation};

object! {
    pub struct Notice {
        severity: NoticeSeverity = "severity";
        /// One line, not empty.
        title: String = "title";
    } may {
        description: Option<String> = "description";
    }
    check title_is_there;
}

words! {
    pub open enum NoticeSeverity {
        Info = "info";
        Warning = "warning";
        Error = "error";
    }
}

fn title_is_there(notice: &Notice, at: &Path<'_>) -> Result<(), Violation> {
    if notice.title.is_empty() {
        return Err(at.key("title").violation("must not be empty"));
    }
    Ok(())
}
