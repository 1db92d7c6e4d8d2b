//! Chat templates: Jinja as transformers runs it.

mod json;
mod python;
mod source;
mod time;

use std::collections::BTreeMap;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::{Map, Value as Json};

use super::chat::{ChatOptions, Message};
use crate::error::{Error, Result};

/// The templates of a tokenizer by name, and the special tokens that they write.
#[derive(Debug, Default)]
pub(super) struct Templates {
    sources: BTreeMap<String, String>,
    special: Vec<(String, String)>,
}

impl Templates {
    pub(super) fn new(special: Vec<(String, String)>) -> Templates {
        Templates { sources: BTreeMap::new(), special }
    }

    pub(super) fn insert(&mut self, name: &str, source: String) {
        self.sources.insert(name.to_string(), source);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.iter().map(|(name, source)| (name.as_str(), source.as_str()))
    }

    pub(super) fn special(&self, role: &str) -> Option<&str> {
        let found = self.special.iter().find(|(name, _)| name == role);
        found.map(|(_, text)| text.as_str())
    }

    pub(super) fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let messages =
            messages.iter().map(|message| Json::Object(message.clone().into())).collect();
        self.render_json(messages, options)
    }

    /// Renders messages of any shape.
    pub(super) fn render_json(&self, messages: Vec<Json>, options: &ChatOptions) -> Result<String> {
        let source = self.choose(options)?;
        let variables = self.variables(messages, options);
        let environment = environment(options.now.unwrap_or_else(SystemTime::now));
        let source = source::adapted(source);
        let template = environment.template_from_str(&source).map_err(|e| failed(&e))?;
        let variables = json::to_template(&Json::Object(variables));
        // Templates come from strangers, and the library panics on some slices.
        let render = std::panic::AssertUnwindSafe(|| template.render(variables));
        match std::panic::catch_unwind(render) {
            Ok(rendered) => rendered.map_err(|e| failed(&e)),
            Err(_) => Err(Error::Template("the template engine panicked".into())),
        }
    }

    fn choose(&self, options: &ChatOptions) -> Result<&str> {
        let usual = ["tool_use", "default"];
        let usual = if options.tools.is_empty() { &usual[1..] } else { &usual[..] };
        let found = match &options.template {
            Some(name) => self.sources.get(name),
            None => usual.iter().find_map(|name| self.sources.get(*name)),
        };
        found.map(String::as_str).ok_or_else(|| {
            let names: Vec<&str> = self.sources.keys().map(String::as_str).collect();
            let wanted = options.template.as_deref().unwrap_or("default");
            match names.as_slice() {
                [] => Error::Template("the model has none".into()),
                names => {
                    Error::argument("template", format!("one of {}", names.join(", ")), wanted)
                }
            }
        })
    }

    fn variables(&self, messages: Vec<Json>, options: &ChatOptions) -> Map<String, Json> {
        let or_none = |values: &[Json]| match values {
            [] => Json::Null,
            values => values.to_vec().into(),
        };
        let mut variables: Map<String, Json> =
            self.special.iter().map(|(role, text)| (role.clone(), text.clone().into())).collect();
        variables.extend(options.variables.clone());
        let messages: Vec<Json> = messages.into_iter().map(with_reasoning).collect();
        variables.insert("messages".into(), messages.into());
        variables.insert("tools".into(), or_none(&options.tools));
        variables.insert("documents".into(), or_none(&options.documents));
        variables.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        variables
    }
}

/// Reasoning under the names that templates have for it.
fn with_reasoning(mut message: Json) -> Json {
    let Some(fields) = message.as_object_mut() else { return message };
    let names = ["reasoning_content", "thinking", "reasoning"];
    let found = names.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()));
    if let Some(reasoning) = found.cloned() {
        fields.entry("thinking").or_insert_with(|| reasoning.clone());
        fields.insert("reasoning_content".into(), reasoning);
    }
    message
}

fn environment(now: SystemTime) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    // These delimiters are the usual ones, which are always accepted.
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(python::method);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("fromjson", json::fromjson);
    environment.add_filter(source::REVERSED, python::reversed);
    environment.add_filter(source::EACH, python::each);
    python::add_generators(&mut environment);
    environment.add_test("iterable", python::is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("dict", python::dict);
    environment.add_function("strftime_now", move |format: String| time::format(now, &format));
    environment
}

/// Marks an error that a template raised itself.
const RAISED: &str = "raised by the template: ";

fn raise_exception(message: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

fn failed(error: &minijinja::Error) -> Error {
    let detail = error.detail().unwrap_or_default();
    if let Some((_, message)) = detail.split_once(RAISED) {
        return Error::Template(message.to_string());
    }
    let line = error.line().map_or(String::new(), |line| format!("line {line}: "));
    let mut what = format!("{line}{}", error.kind());
    if !detail.is_empty() {
        what = format!("{what}: {detail}");
    }
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        what = format!("{what}: {inner}");
        source = inner.source();
    }
    Error::Template(what)
}
