use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Answer, Failure, Interrupt, InterruptKind, Outcome, Resolution, Survives};

use super::codec::{Damage, DecodeResult, FieldReader};
use super::field::{Field, fields, variants};

fields!(Interrupt { id, kind, prompt, payload, options, schema, survives, patience });
fields!(PermissionOption { id, name, effect, always });
fields!(Failure { code, message, transient, data });
variants!(Effect: 0 = Allow, 1 = Reject);
variants!(Survives: 0 = Process, 1 = Restart);
variants!(InterruptKind: 0 = Permission, 1 = Message, 2 = Form, 3 = Url, 4 = Custom(name));
variants!(Answer: 0 = Option(id), 1 = Json(json), 2 = Message(parts));
variants!(Resolution:
    0 = Answered { by, answer, digest, extra },
    1 = TimedOut { option },
    2 = Cancelled,
    3 = Withdrawn { reason },
);
variants!(Outcome:
    0 = Completed,
    1 = Failed(failure),
    2 = Cancelled { reason },
    3 = TimedOut { reason },
);
