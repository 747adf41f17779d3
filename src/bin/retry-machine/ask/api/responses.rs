//! OpenAI's Responses.

use retry_machine::StopReason;
use serde_json::{Value, json};

use super::{Answer, Request, count, openai_usage, refusal, text};

pub fn body(request: &Request<'_>) -> Value {
    let mut body = json!({
        "model": request.model,
        "input": request.messages,
        "stream": true,
        // The context is sent each time; nothing need be kept there.
        "store": false,
    });
    if let Some(max_tokens) = request.max_tokens {
        body["max_output_tokens"] = max_tokens.into();
    }
    body
}

pub fn read(event: &Value, data: &str, answer: &mut Answer) -> Result<(), String> {
    match text(event, "/type") {
        "error" => return Err(data.to_owned()),
        "response.failed" => {
            let code = text(event, "/response/error/code");
            let message = text(event, "/response/error/message");
            return Err(if message.is_empty() {
                data.to_owned()
            } else {
                format!("{code}: {message}")
            });
        }
        // A refusal is said in words, in place of a text.
        "response.output_text.delta" | "response.refusal.delta" => {
            answer.text.push_str(text(event, "/delta"));
        }
        "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
            answer.thinking = true;
        }
        "response.completed" => {
            usage(event, answer);
            answer.stop = Some(StopReason::Stop);
            answer.complete = true;
        }
        "response.incomplete" => {
            usage(event, answer);
            let reason = text(event, "/response/incomplete_details/reason");
            if reason == "content_filter" {
                return Err(refusal(reason));
            }
            answer.stop = Some(StopReason::Length);
            answer.complete = true;
        }
        // A server that speaks another API's form of errors within this one.
        _ if event.get("error").is_some_and(Value::is_object) => return Err(data.to_owned()),
        _ => {}
    }
    Ok(())
}

fn usage(event: &Value, answer: &mut Answer) {
    if event
        .pointer("/response/usage")
        .is_some_and(Value::is_object)
    {
        answer.usage = Some(openai_usage(
            count(event, "/response/usage/input_tokens"),
            count(event, "/response/usage/input_tokens_details/cached_tokens"),
            count(event, "/response/usage/output_tokens"),
        ));
    }
}
