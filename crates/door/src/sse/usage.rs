//! Token counts as the server reports them.

use serde_json::Value;

/// One answer's tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Prompt tokens served from a prefix cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// From an event or a whole response: `usage` at the top, in `response` or in `message`;
    /// OpenAI's and Anthropic's names, or llama.cpp's `timings`.
    pub fn read(value: &Value) -> Option<Usage> {
        let holders = [
            &value["usage"],
            &value["response"]["usage"],
            &value["message"]["usage"],
        ];
        let Some(usage) = holders.into_iter().find(|usage| usage.is_object()) else {
            return Usage::of_timings(&value["timings"]);
        };
        let number = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_u64());
        let prompt = number(["prompt_tokens", "input_tokens"]);
        let completion = number(["completion_tokens", "output_tokens"]);
        if prompt.is_none() && completion.is_none() {
            return None;
        }
        let details = ["prompt_tokens_details", "input_tokens_details"];
        let cached = details
            .iter()
            .find_map(|name| usage[*name]["cached_tokens"].as_u64());
        Some(Usage {
            prompt_tokens: prompt.unwrap_or(0),
            completion_tokens: completion.unwrap_or(0),
            cached_tokens: cached
                .or(usage["cache_read_input_tokens"].as_u64())
                .unwrap_or(0),
        })
    }

    fn of_timings(timings: &Value) -> Option<Usage> {
        let completion_tokens = timings["predicted_n"].as_u64()?;
        let cached_tokens = timings["cache_n"].as_u64().unwrap_or(0);
        // llama.cpp counts what it evaluated, without what the cache held.
        let prompt_tokens = timings["prompt_n"].as_u64().unwrap_or(0) + cached_tokens;
        Some(Usage {
            prompt_tokens,
            completion_tokens,
            cached_tokens,
        })
    }
}
