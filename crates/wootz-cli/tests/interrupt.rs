//! Ctrl-C in a conversation: it ends the answer, not the program.
#![cfg(unix)]
#![allow(missing_docs)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{World, model};
use serde_json::Value;

/// How long anything may take, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// A model that talks for hours if nobody stops it.
fn talkative(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    for entry in std::fs::read_dir(model()).unwrap() {
        let file = entry.unwrap().path();
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["max_position_embeddings"] = 100_000_000.into();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(path, config.to_string()).unwrap();
}

/// A program that does not outlive the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _may_have_ended = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
}

/// The lines of a stream, as they come.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _nobody_waits = sender.send(line);
        }
    });
    receiver
}

/// What a stream says, as it comes: read at once, so that nobody waits for a reader.
struct Said {
    chunks: Receiver<Vec<u8>>,
    text: String,
}

impl Said {
    fn by(mut stream: impl Read + Send + 'static) -> Said {
        let (sender, chunks) = channel();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                let _nobody_waits = sender.send(buffer[..count].to_vec());
            }
        });
        Said { chunks, text: String::new() }
    }

    /// Waits until enough is there.
    #[track_caller]
    fn until(&mut self, enough: impl Fn(&str) -> bool) {
        while !enough(&self.text) {
            let chunk = self.chunks.recv_timeout(PATIENCE);
            let chunk = chunk.unwrap_or_else(|_| panic!("only {} bytes", self.text.len()));
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

/// Waits for a line that contains a text.
#[track_caller]
fn wait_for(lines: &Receiver<String>, text: &str) {
    while !lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {text}")).contains(text) {}
}

#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let world = World::new();
    talkative(&world.path("model"));
    let mut command = world.command();
    command.args(["chat", "-m", "model", "--device", "cpu", "-n", "90000000", "-c", "64"]);
    // Always the letter a, and never the end.
    command.args(["--temp", "0", "--logit-bias", "68:1000"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().unwrap());
    let child = &mut running.0;
    let mut input = child.stdin.take().unwrap();
    let mut output = Said::by(child.stdout.take().unwrap());
    let errors = lines(child.stderr.take().unwrap());
    let mut say = |text: &str| input.write_all(text.as_bytes()).unwrap();

    for number in 1..=2 {
        say("hello\n");
        // The answer has begun when some of it is there.
        output.until(|text| text.len() > 8);
        interrupt(child);
        wait_for(&errors, "(stopped)");
        assert!(child.try_wait().unwrap().is_none(), "the program has ended");
        say(&format!("/save talk{number}.json\n"));
        wait_for(&errors, &format!("({} messages in talk{number}.json)", 2 * number));
        output.until(|text| text.ends_with('\n'));
        let said = std::mem::take(&mut output.text);
        assert_eq!(said, "a".repeat(said.len() - 1) + "\n");
        let saved = std::fs::read(world.path(&format!("talk{number}.json"))).unwrap();
        let saved: Value = serde_json::from_slice(&saved).unwrap();
        let answer = saved[2 * number - 1]["content"].as_str().unwrap();
        assert_eq!(answer, said.trim_end(), "what was said stays");
    }
    say("/exit\n");
    assert!(child.wait().unwrap().success());
}
