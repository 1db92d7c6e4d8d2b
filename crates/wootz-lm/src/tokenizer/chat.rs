//! Conversations: messages, and what goes to a template with them.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message of a conversation, read and written as the JSON object that chat APIs use.
///
/// ```
/// use wootz_lm::tokenizer::Message;
/// let message: Message = serde_json::from_str(r#"{"role": "user", "content": "Hello"}"#)?;
/// assert_eq!(message, Message::new("user", "Hello"));
/// let call = serde_json::json!([{"type": "function", "function": {"name": "now", "arguments": {}}}]);
/// let message = Message::new("assistant", "").with("tool_calls", call);
/// assert!(serde_json::to_string(&message)?.contains("tool_calls"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct Message {
    /// Who says it: `system`, `user`, `assistant`, `tool`, or what else a template knows.
    pub role: String,
    /// What is said.
    pub content: String,
    /// All else: `tool_calls`, `tool_call_id`, `name`, `reasoning_content`, …. Content that is no
    /// text, such as a list of parts or `null`, is here under `content` and comes before the text.
    pub fields: Map<String, Value>,
}

impl Message {
    /// A message of text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), fields: Map::new() }
    }

    /// The message with another field.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Message {
        self.fields.insert(field.into(), value.into());
        self
    }
}

impl TryFrom<Map<String, Value>> for Message {
    type Error = String;

    fn try_from(mut fields: Map<String, Value>) -> Result<Message, String> {
        let role = match fields.shift_remove("role") {
            Some(Value::String(role)) => role,
            other => {
                let got = other.map_or("nothing".to_string(), |other| other.to_string());
                return Err(format!("role of a message: expected a text, got {got}"));
            }
        };
        let content = match fields.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => {
                parts.iter().filter_map(|part| part["text"].as_str()).collect()
            }
            Some(Value::Null) => String::new(),
            None => {
                fields.insert("content".into(), Value::Null);
                String::new()
            }
            Some(other) => {
                return Err(format!("content of a message: expected a text or parts, got {other}"));
            }
        };
        if fields.get("content").is_some_and(Value::is_string) {
            fields.shift_remove("content");
        }
        Ok(Message { role, content, fields })
    }
}

impl From<Message> for Map<String, Value> {
    fn from(message: Message) -> Map<String, Value> {
        let Message { role, content, fields } = message;
        let mut map = Map::new();
        map.insert("role".into(), role.into());
        map.insert("content".into(), content.into());
        map.extend(fields);
        map
    }
}

/// What a template is given beside the messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChatOptions {
    /// The template's name, of a model that has several. Without one it is `tool_use` where there
    /// are tools and such a template, else `default`.
    pub template: Option<String>,
    /// Functions that the model may call, as JSON schemas.
    pub tools: Vec<Value>,
    /// Documents that answers may be based on, each with a `title` and a `text`.
    pub documents: Vec<Value>,
    /// Whether the text ends with the beginning of an answer. It does by default.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`; they come before those of the tokenizer.
    pub variables: Map<String, Value>,
    /// What a template takes for the current time, in UTC. The system's clock by default.
    pub now: Option<SystemTime>,
}

impl Default for ChatOptions {
    fn default() -> ChatOptions {
        ChatOptions {
            template: None,
            tools: Vec::new(),
            documents: Vec::new(),
            add_generation_prompt: true,
            variables: Map::new(),
            now: None,
        }
    }
}

impl ChatOptions {
    /// The options with another variable.
    ///
    /// ```
    /// # use wootz_lm::tokenizer::ChatOptions;
    /// let quick = ChatOptions::default().with("enable_thinking", false);
    /// ```
    #[must_use]
    pub fn with(mut self, variable: impl Into<String>, value: impl Into<Value>) -> ChatOptions {
        self.variables.insert(variable.into(), value.into());
        self
    }
}
