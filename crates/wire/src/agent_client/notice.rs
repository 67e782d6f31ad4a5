use super::object::object;
use crate::json::words::words;
use crate::json::{Path, Violation};

object! {
    /// Something that the user should know.
    pub struct Notice {
        /// How bad it is.
        severity: NoticeSeverity = "severity" as required;
        /// What it is, in a line that is not empty.
        title: String = "title" as required;
    } may {
        /// More about it.
        description: Option<String> = "description" as lenient;
    }
    check title_is_there;
}

words! {
    /// How bad something is.
    pub open enum NoticeSeverity {
        /// It is good to know.
        Info = "info";
        /// It may go wrong.
        Warning = "warning";
        /// It went wrong.
        Error = "error";
    }
}

fn title_is_there(notice: &Notice, at: &Path<'_>) -> Result<(), Violation> {
    if notice.title.is_empty() {
        return Err(at.key("title").violation("must not be empty"));
    }
    Ok(())
}
