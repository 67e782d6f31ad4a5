//! A sample of every question to the user and of every answer, with every member set.

use trilogue_wire::agent_client::*;

use super::agent_client_samples::{Sample, call, meta, sample, some};

fn form() -> ElicitationSchema {
    let string = StringPropertySchema {
        title: some("T"),
        description: some("d"),
        min_length: Some(1),
        max_length: Some(9),
        pattern: some("a+"),
        format: Some(StringFormat::DateTime),
        default: some("a"),
        ..Default::default()
    };
    let one = StringPropertySchema { choice: Some(vec!["a".to_owned()]), ..Default::default() };
    let option = || EnumOption { description: some("d"), ..EnumOption::new("a", "A") };
    let titled = StringPropertySchema { titled_choice: Some(vec![option()]), ..Default::default() };
    let half = || Some(serde_json::Number::from_f64(0.5).unwrap());
    let number = NumberPropertySchema {
        minimum: half(),
        maximum: half(),
        default: half(),
        ..Default::default()
    };
    let whole = IntegerPropertySchema {
        minimum: Some(i64::MIN),
        maximum: Some(9),
        default: Some(3),
        ..Default::default()
    };
    let switch = BooleanPropertySchema { default: Some(false), ..Default::default() };
    let several = MultiSelectPropertySchema {
        min_items: Some(1),
        max_items: Some(2),
        default: Some(vec!["a".to_owned()]),
        ..MultiSelectPropertySchema::new(MultiSelectItems::Plain(StringMultiSelectItems::new(
            vec!["a".to_owned()],
        )))
    };
    let named = MultiSelectPropertySchema::new(MultiSelectItems::Titled(
        TitledMultiSelectItems::new(vec![option()]),
    ));
    let fields = [
        ("a", ElicitationPropertySchema::String(Box::new(string))),
        ("b", ElicitationPropertySchema::String(Box::new(one))),
        ("c", ElicitationPropertySchema::String(Box::new(titled))),
        ("d", ElicitationPropertySchema::Number(Box::new(number))),
        ("e", ElicitationPropertySchema::Integer(Box::new(whole))),
        ("f", ElicitationPropertySchema::Boolean(switch)),
        ("g", ElicitationPropertySchema::Array(Box::new(several))),
        ("h", ElicitationPropertySchema::Array(Box::new(named))),
    ];
    let fields = fields.into_iter().map(|(name, field)| (name.to_owned(), field)).collect();
    ElicitationSchema {
        title: some("T"),
        description: some("d"),
        ..ElicitationSchema::of(fields, Some(vec!["a".to_owned()]))
    }
}

pub(crate) fn questions() -> Vec<Sample> {
    let kinds = PermissionOptionKind::ALL.iter();
    let options: Vec<_> =
        kinds.map(|kind| PermissionOption::new(kind.as_str(), "name", *kind)).collect();
    let ask = RequestPermissionRequest::new("s", call(), options);
    let by_form = ElicitationForm {
        session_id: some("s"),
        tool_call_id: some("c"),
        ..ElicitationForm::new("m", form())
    };
    let by_url = ElicitationUrl {
        request_id: Some(Id::number(7)),
        meta: meta(),
        ..ElicitationUrl::new("m", "e", "https://example.com/")
    };
    let filled = [
        ("a", ElicitationValue::Text("x".to_owned())),
        ("b", ElicitationValue::Number(7.into())),
        ("c", ElicitationValue::Boolean(true)),
        ("d", ElicitationValue::Texts(vec!["y".to_owned()])),
    ];
    let filled = filled.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let accept = ElicitationAccept { content: Some(filled), ..Default::default() };
    let mut samples = vec![
        sample("RequestPermissionRequest", &ask),
        sample("RequestPermissionResponse", &RequestPermissionResponse::selected("o")),
        sample("RequestPermissionResponse", &RequestPermissionResponse::cancelled()),
        sample("CreateElicitationRequest", &CreateElicitationRequest::Form(Box::new(by_form))),
        sample("CreateElicitationRequest", &CreateElicitationRequest::Url(Box::new(by_url))),
        sample("CompleteElicitationNotification", &CompleteElicitationNotification::new("e")),
    ];
    for answer in [
        CreateElicitationResponse::Accept(accept),
        CreateElicitationResponse::Decline(ElicitationDecline::new()),
        CreateElicitationResponse::Cancel(ElicitationCancel::new()),
    ] {
        samples.push(sample("CreateElicitationResponse", &answer));
    }
    samples
}
