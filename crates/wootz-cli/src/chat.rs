//! `wootz chat`: a conversation in the terminal.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use wootz_lm::generate::Conversation;
use wootz_lm::tokenizer::Message;

use crate::common::Common;
use crate::failure::{colours, hinted, report};
use crate::generate::{chat_options, prompt_bar};
use crate::sampling::Sampling;
use crate::session::{Opened, open, setting};
use crate::source::{ModelOptions, own_cache};

const HELP: &str = "\
/help           this text
/reset          forget the conversation
/system TEXT    say what the model should be, and forget the conversation
/save FILE      write the conversation as JSON
/load FILE      go on from such a file
/stats          numbers of the last answer
/exit           end (as does ctrl-D)
A line that ends with \\ goes on in the next; \"\"\" begins and ends a text of several lines.
Ctrl-C stops an answer.";

/// Tokens of an answer, unless others are asked for: mlx-lm's number.
const MAX_TOKENS: usize = 256;

/// Options of `wootz chat`.
#[derive(clap::Args)]
#[command(after_help = "\
In the conversation, /help lists commands; ctrl-C stops an answer, ctrl-D ends.

Examples:
  wootz chat
  wootz chat -m qwen3-0.6b --temp 0.7 --system-prompt \"Answer in verse\"
  wootz chat -m model.gguf -c 4096 --kv-bits 8")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOptions,

    /// What the model is told to be.
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,

    /// Variables for the chat template, as JSON: '{"enable_thinking": false}'.
    #[arg(long, value_name = "JSON")]
    chat_template_config: Option<String>,

    #[command(flatten)]
    sampling: Sampling,

    /// A small model with the same tokens that guesses ahead; answers do not change.
    #[arg(long, value_name = "MODEL", help_heading = "Speculative decoding")]
    draft_model: Option<String>,

    /// Tokens that it guesses at a time [default: 3].
    #[arg(long, value_name = "N", requires = "draft_model", help_heading = "Speculative decoding")]
    num_draft_tokens: Option<usize>,
}

pub(crate) fn run(options: &Options, common: &Common) -> anyhow::Result<()> {
    let Opened { model, device, .. } = open(&options.model, common)?;
    if !model.tokenizer.has_chat_template() {
        let error = anyhow!("{} has no chat template: it continues texts", options.model.name());
        return Err(hinted(
            error,
            "use `wootz generate`, or a model whose name has Instruct or it",
        ));
    }
    let mut settings = options.sampling.options(&model, MAX_TOKENS, common)?;
    settings.num_draft_tokens = options.num_draft_tokens.unwrap_or(settings.num_draft_tokens);
    let draft = match &options.draft_model {
        None => None,
        Some(name) => {
            let draft = ModelOptions { model: Some(name.clone()), ..ModelOptions::default() };
            Some(open(&draft, common).context("--draft-model")?.model)
        }
    };
    let mut conversation = Conversation::new(&model, &settings);
    if let Some(draft) = &draft {
        conversation = conversation.draft(draft);
    }
    conversation.chat = chat_options(options.chat_template_config.as_deref())?;
    if let Some(text) = &options.system_prompt {
        conversation.system(text);
    }
    common.say(format!(
        "{} on {}. /help lists commands.",
        options.model.name(),
        setting(&device, common)
    ));
    Talk::new(common)?.go_on(&mut conversation)
}

/// The user's side of a conversation.
struct Talk<'a> {
    common: &'a Common,
    editor: Editor<(), FileHistory>,
    interrupted: Arc<AtomicBool>,
    /// Numbers of the last answer.
    last: Option<String>,
}

impl<'a> Talk<'a> {
    fn new(common: &'a Common) -> anyhow::Result<Talk<'a>> {
        let config = Config::builder().max_history_size(1000)?.build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history)?;
        // Without a history it is a conversation, too.
        let _none_yet = editor.load_history(&own_cache().join("history"));
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = interrupted.clone();
        ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("ctrl-C")?;
        Ok(Talk { common, editor, interrupted, last: None })
    }

    /// Reads and answers until the end.
    fn go_on(&mut self, conversation: &mut Conversation<'_>) -> anyhow::Result<()> {
        while let Some(text) = self.read()? {
            let text = text.trim();
            let result = match text.strip_prefix('/') {
                _ if text.is_empty() => continue,
                Some("exit" | "quit" | "q") => break,
                Some(command) => self.command(command, conversation),
                None => self.answer(text, conversation),
            };
            // A mistake or a full context does not end the conversation.
            if let Err(error) = result {
                let _goes_on = report(&error);
            }
        }
        let cache = own_cache();
        let saved = std::fs::create_dir_all(&cache).is_ok();
        if saved && io::stdin().is_terminal() {
            let _not_needed = self.editor.save_history(&cache.join("history"));
        }
        Ok(())
    }

    /// What the user says, of one line or several; nothing at the end.
    fn read(&mut self) -> anyhow::Result<Option<String>> {
        let mut text = String::new();
        let mut quoted = false;
        loop {
            let prompt = if text.is_empty() && !quoted { ">>> " } else { "... " };
            let line = match self.editor.readline(prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => {
                    self.common.say("(ctrl-D or /exit ends)");
                    (text, quoted) = (String::new(), false);
                    continue;
                }
                Err(ReadlineError::Eof) => return Ok((!text.is_empty()).then_some(text)),
                Err(error) => return Err(error.into()),
            };
            let marks = line.matches("\"\"\"").count();
            quoted ^= marks % 2 == 1;
            let line = line.replace("\"\"\"", "");
            let goes_on = !quoted && line.ends_with('\\');
            text.push_str(line.strip_suffix('\\').filter(|_| goes_on).unwrap_or(&line));
            if !quoted && !goes_on {
                if !text.trim().is_empty() {
                    self.editor.add_history_entry(&text)?;
                }
                return Ok(Some(text));
            }
            text.push('\n');
        }
    }

    fn answer(&mut self, text: &str, conversation: &mut Conversation<'_>) -> anyhow::Result<()> {
        self.interrupted.store(false, Ordering::Relaxed);
        let stopped = || self.interrupted.load(Ordering::Relaxed);
        let bar = prompt_bar(self.common);
        let reply = conversation.send_with(text, &mut |done, total| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            if stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        let mut reply = match reply {
            Err(wootz_lm::Error::Interrupted { .. }) => {
                self.common.say("(stopped)");
                return Ok(());
            }
            reply => reply?,
        };
        let mut out = io::stdout();
        let mut early = false;
        for piece in &mut reply {
            write!(out, "{}", piece?.text)?;
            out.flush()?;
            if stopped() {
                early = true;
                break;
            }
        }
        self.last = Some(reply.statistics().to_string());
        drop(reply);
        writeln!(out)?;
        if early {
            self.common.say("(stopped)");
        }
        if let (true, Some(last)) = (self.common.verbose, &self.last) {
            eprintln!("{last}");
        }
        Ok(())
    }

    fn command(
        &mut self,
        command: &str,
        conversation: &mut Conversation<'_>,
    ) -> anyhow::Result<()> {
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let rest = rest.trim();
        match (name, rest) {
            ("help", "") => {
                let bold = |text: &str| {
                    if colours(&io::stderr()) {
                        format!("\x1b[1m{text}\x1b[0m")
                    } else {
                        text.into()
                    }
                };
                eprintln!("{}\n{HELP}", bold("Commands"));
            }
            ("reset", "") => {
                conversation.reset();
                self.common.say("(forgotten)");
            }
            ("stats", "") => {
                eprintln!("{}", self.last.as_deref().unwrap_or("There was no answer yet."))
            }
            ("system", text) if !text.is_empty() => {
                conversation.reset();
                conversation.system(text);
            }
            ("save", file) if !file.is_empty() => {
                let json = serde_json::to_string_pretty(conversation.messages())?;
                std::fs::write(file, json + "\n").with_context(|| file.to_string())?;
                self.common.say(format!("({} messages in {file})", conversation.messages().len()));
            }
            ("load", file) if !file.is_empty() => {
                let messages = load(Path::new(file))?;
                self.common.say(format!("({} messages)", messages.len()));
                conversation.set_messages(messages);
            }
            ("save" | "load", _) => {
                return Err(hinted(anyhow!("/{name}: which file?"), format!("/{name} FILE")));
            }
            _ => return Err(hinted(anyhow!("there is no command /{command}"), "/help lists them")),
        }
        Ok(())
    }
}

fn load(file: &Path) -> anyhow::Result<Vec<Message>> {
    let name = || format!("{}", file.display());
    let bytes = std::fs::read(file).with_context(name)?;
    serde_json::from_slice(&bytes).with_context(name)
}
