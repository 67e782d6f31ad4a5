use super::super::{Event, EventKind, Json, Run};
use super::leaf::Text;
use super::members::{Members, object};
use super::raw::Raw;
use super::{At, Read, Violation, quoted, read_at};

// === impl Event ===

impl Read for Event {
    type Draft = Members;
    fn finish(mut members: Members, at: &At<'_>) -> Result<Self, Violation> {
        let kind_at = at.key("type");
        let Text(name) = members.take::<Text>("type", at)?.required(&kind_at)?;
        let kind = EventKind::parse(&name).ok_or_else(|| {
            let known = EventKind::ALL.map(EventKind::as_str).join(", ");
            kind_at.violation(format!("must be one of {known}, not {}", quoted(&name)))
        })?;
        let about = About { name: kind.member(), at: at.key(kind.member()), members };
        Ok(match kind {
            EventKind::MessageCreated => Self::MessageCreated { message: about.read()? },
            EventKind::MessagePart => Self::MessagePart { part: about.read()? },
            EventKind::MessageCompleted => Self::MessageCompleted { message: about.read()? },
            EventKind::Generic => Self::Generic { generic: about.object()? },
            EventKind::RunCreated => Self::RunCreated { run: about.run()? },
            EventKind::RunInProgress => Self::RunInProgress { run: about.run()? },
            EventKind::RunAwaiting => Self::RunAwaiting { run: about.run()? },
            EventKind::RunCompleted => Self::RunCompleted { run: about.run()? },
            EventKind::RunFailed => Self::RunFailed { run: about.run()? },
            EventKind::RunCancelled => Self::RunCancelled { run: about.run()? },
            EventKind::Error => Self::Error { error: about.read()? },
        })
    }
}

/// The member that an event is about.
struct About<'a> {
    name: &'static str,
    at: At<'a>,
    members: Members,
}

impl About<'_> {
    fn read<T: Read>(mut self) -> Result<T, Violation> {
        let raw = self.raw()?;
        read_at(raw.bytes(), &self.at)
    }

    fn run(self) -> Result<Box<Run>, Violation> {
        self.read().map(Box::new)
    }

    fn object(mut self) -> Result<Json, Violation> {
        let raw = self.raw()?;
        object(raw, &self.at)
    }

    fn raw(&mut self) -> Result<Raw, Violation> {
        self.members.remove(self.name).ok_or_else(|| self.at.violation("is missing"))
    }
}
