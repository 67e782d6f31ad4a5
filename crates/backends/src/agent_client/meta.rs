use std::borrow::Cow;

use trilogue_domain::Json;
use trilogue_mapping::agent_client::{with_members, without_meta};
use trilogue_sdk::agent_client::peer::RawJson;

use super::launch::ClientMeta;

/// JSON of a client, as the agent gets it.
pub(super) fn for_agent(json: RawJson, meta: ClientMeta) -> RawJson {
    if meta == ClientMeta::Pass {
        return json;
    }
    match without_meta(json.as_str()) {
        Cow::Borrowed(_) => json,
        // JSON stays valid if members are removed.
        Cow::Owned(less) => RawJson::parse(less).unwrap_or(RawJson::EMPTY),
    }
}

/// The params of a request with a client's own members added at its root, as the agent gets them.
pub(super) fn with_extra(params: RawJson, extra: Option<&Json>, meta: ClientMeta) -> RawJson {
    let Some(extra) = extra else { return for_agent(params, meta) };
    let all = with_members(params.as_str(), extra.as_str());
    for_agent(RawJson::parse(all).unwrap_or(params), meta)
}
