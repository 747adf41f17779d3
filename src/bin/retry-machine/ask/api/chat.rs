//! OpenAI's Chat Completions.

use retry_machine::StopReason;
use serde_json::{Value, json};

use super::{Answer, Request, count, openai_usage, refusal, text};

pub fn body(request: &Request<'_>) -> Value {
    let mut body = json!({
        "model": request.model,
        "messages": request.messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if let Some(max_tokens) = request.max_tokens {
        body["max_completion_tokens"] = max_tokens.into();
    }
    body
}

pub fn read(event: &Value, data: &str, answer: &mut Answer) -> Result<(), String> {
    if event.get("error").is_some_and(|error| !error.is_null()) {
        return Err(data.to_owned());
    }
    answer
        .text
        .push_str(text(event, "/choices/0/delta/content"));
    answer.thinking |= !text(event, "/choices/0/delta/reasoning_content").is_empty();
    if event.get("usage").is_some_and(Value::is_object) {
        answer.usage = Some(openai_usage(
            count(event, "/usage/prompt_tokens"),
            count(event, "/usage/prompt_tokens_details/cached_tokens"),
            count(event, "/usage/completion_tokens"),
        ));
    }
    match text(event, "/choices/0/finish_reason") {
        "" => {}
        "length" => answer.stop = Some(StopReason::Length),
        reason @ "content_filter" => return Err(refusal(reason)),
        // Gateways that translate report the failure of a stream so.
        "error" => return Err(data.to_owned()),
        _ => answer.stop = Some(StopReason::Stop),
    }
    Ok(())
}
