//! Anthropic's Messages.

use retry_machine::{StopReason, Usage};
use serde_json::{Value, json};

use super::{Answer, Request, count, refusal, text};

/// The API wants a limit; this one is below what every current model allows.
const MAX_TOKENS: u32 = 8192;

pub fn body(request: &Request<'_>) -> Value {
    json!({
        "model": request.model,
        "max_tokens": request.max_tokens.unwrap_or(MAX_TOKENS),
        "messages": request.messages,
        "stream": true,
    })
}

pub fn read(event: &Value, data: &str, answer: &mut Answer) -> Result<(), String> {
    match text(event, "/type") {
        "error" => return Err(data.to_owned()),
        "message_start" => {
            let usage = answer.usage.get_or_insert_with(Usage::default);
            usage.input = count(event, "/message/usage/input_tokens");
            usage.cache_read = count(event, "/message/usage/cache_read_input_tokens");
            usage.cache_write = count(event, "/message/usage/cache_creation_input_tokens");
        }
        "content_block_delta" => match text(event, "/delta/type") {
            "text_delta" => answer.text.push_str(text(event, "/delta/text")),
            "thinking_delta" => answer.thinking = true,
            _ => {}
        },
        "message_delta" => {
            let usage = answer.usage.get_or_insert_with(Usage::default);
            usage.output = count(event, "/usage/output_tokens");
            match text(event, "/delta/stop_reason") {
                "" => {}
                "max_tokens" | "model_context_window_exceeded" => {
                    answer.stop = Some(StopReason::Length);
                }
                reason @ "refusal" => return Err(refusal(reason)),
                // No tools are offered, so there is nothing to go on with.
                _ => answer.stop = Some(StopReason::Stop),
            }
        }
        "message_stop" => answer.complete = true,
        _ => {}
    }
    Ok(())
}
