use super::ContentBlock;
use super::object::object;

object! {
    /// Unstable. The whole list of suggestions. It replaces the previous one, and is not part of the history.
    pub struct PromptSuggestionsUpdate {
        /// The most likely first. An empty list withdraws the suggestions.
        suggestions: Vec<PromptSuggestion> = "suggestions" as fitting_there;
    }

    /// A prompt that the user may send next.
    pub struct PromptSuggestion {
        /// At least one block.
        prompt: Vec<ContentBlock> = "prompt";
    }
}
