//! Models from Hugging Face, through `hf-hub` and into its cache. Large files are resumed where an
//! earlier run stopped, and their hash is checked before they take their place. All files are of one commit, whatever
//! happens to the repository meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use fs4::fs_std::FileExt;
use futures::StreamExt;
use hf_hub::repository::{FileMetadataInfo, RepoTreeEntry, RepoTypeModel};
use hf_hub::{HFClient, HFError, HFRepository};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::Wanted;
use super::cached::{self, MAIN, hub_cache, is_commit, repository_folder};
use super::pypi::hex;
use crate::common::Common;
use crate::failure::hinted;

/// How long the hub may take to connect; and to answer the first call, where somebody else has the model, too.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long the hub may send nothing, unless `HF_HUB_DOWNLOAD_TIMEOUT` says other seconds.
const STALL: Duration = Duration::from_secs(30);

/// How often a download that breaks off is taken up again.
const ATTEMPTS: usize = 5;

/// The same where nothing came for as long as the hub may take.
const STALLED_ATTEMPTS: usize = 2;

/// Bytes in a second that a small file comes with at least.
const SLOWEST: u64 = 16 << 10;

/// Why nothing was fetched.
pub(super) enum Failure {
    /// There is no way to the hub: somebody else may have the model.
    Unreachable(String),
    /// The hub answers, but does not give the model: the same.
    Refused(anyhow::Error),
    /// It is not the hub's fault.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Other(error.into())
    }
}

impl Failure {
    pub(super) fn into_error(self) -> anyhow::Error {
        match self {
            Failure::Other(error) | Failure::Refused(error) => error,
            Failure::Unreachable(reason) => hinted(
                anyhow!("Hugging Face cannot be reached: {reason}"),
                "check the network, or HF_ENDPOINT if you use a mirror; a local folder or .gguf file needs neither",
            ),
        }
    }
}

/// Whether the user forbids to ask the hub.
pub(super) fn is_offline() -> bool {
    let value = std::env::var("HF_HUB_OFFLINE").unwrap_or_default();
    ["1", "true", "yes", "on"].contains(&value.to_lowercase().as_str())
}

/// How long the hub may send nothing in the midst of an answer, or before one that is not the first.
fn stall_limit() -> Duration {
    let given = std::env::var("HF_HUB_DOWNLOAD_TIMEOUT").ok();
    let seconds =
        given.and_then(|text| text.trim().parse::<u64>().ok()).filter(|&seconds| seconds > 0);
    seconds.map_or(STALL, Duration::from_secs)
}

/// Waits for a part of an answer, but not for ever.
async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::time::timeout(limit, work).await.map_err(|_| stalled(what, limit))
}

fn stalled(what: &str, limit: Duration) -> Failure {
    let error = anyhow!("{what}: the hub sent nothing for {} s", limit.as_secs());
    let hint = "start again: what came is used; HF_HUB_DOWNLOAD_TIMEOUT=SECONDS waits longer";
    Failure::Refused(hinted(error, hint))
}

/// Fetches a repository's model, or one .gguf file of it, and says where it is. The hub's first answer may
/// take as long as `patience` says.
pub(super) fn fetch(
    wanted: Wanted<'_>,
    patience: Duration,
    common: &Common,
) -> Result<PathBuf, Failure> {
    let repository = wanted.repository;
    if is_offline() {
        let error = anyhow!("{repository} is not in the cache, and HF_HUB_OFFLINE is set");
        return Err(hinted(error, "unset HF_HUB_OFFLINE to download it").into());
    }
    let client = HFClient::builder().retry_max_attempts(2).cache_dir(hub_cache()).build();
    let client = client.map_err(|error| explain(error, repository))?;
    connect(client.endpoint())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(download(&client, wanted, patience, common))
}

/// Finds out whether anybody answers at an address, without waiting for long.
fn connect(endpoint: &str) -> Result<(), Failure> {
    // Whoever has a proxy may not be able to look up names.
    let proxies =
        ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    if proxies.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return Ok(());
    }
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let authority = rest.split('/').next().unwrap_or(rest);
    let authority = authority.rsplit('@').next().unwrap_or(authority).to_string();
    let port = if scheme == "http" { 80 } else { 443 };
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { authority.clone() } else { format!("{authority}:{port}") };
    let (sender, receiver) = std::sync::mpsc::channel();
    // Looking up a name has no limit of its own, so that it is left behind if it takes long.
    std::thread::spawn(move || {
        let _nobody_waits = sender.send(first_connection(&address));
    });
    match receiver.recv_timeout(PATIENCE + Duration::from_millis(200)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => Err(Failure::Unreachable(format!("{authority}: {reason}"))),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            Err(Failure::Unreachable(format!("{authority} did not connect within {seconds} s")))
        }
    }
}

fn first_connection(address: &str) -> Result<(), String> {
    let addresses = address.to_socket_addrs().map_err(|error| error.to_string())?;
    let mut last = "the name has no address".to_string();
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

async fn download(
    client: &HFClient,
    Wanted { repository, file, revision }: Wanted<'_>,
    patience: Duration,
    common: &Common,
) -> Result<PathBuf, Failure> {
    let (owner, name) = hf_hub::split_id(repository);
    let model = client.model(owner, name);
    let explain = |error| explain(error, repository);
    // Whoever takes a connection may never greet, and retries take long: the first answer has a limit, too.
    let info = model.info().maybe_revision(revision).send();
    let info = tokio::time::timeout(patience, info);
    let info = match info.await {
        Ok(info) => info.map_err(explain)?,
        Err(_) => {
            let seconds = patience.as_secs();
            let reason = format!("it connects, but does not answer within {seconds} s");
            return Err(Failure::Unreachable(reason));
        }
    };
    let commit = info.sha.ok_or_else(|| anyhow!("{repository}: the hub names no commit"))?;
    let limit = stall_limit();
    let names = list(&model, &commit, repository, limit).await?;
    let wanted = choose(repository, &names, file)?;
    let mut files = Vec::new();
    for name in &wanted {
        let metadata = model.get_file_metadata().filepath(name).revision(commit.as_str()).send();
        let what = format!("{name} of {repository}");
        files.push(within(limit, &what, metadata).await?.map_err(explain)?);
    }
    if let Some(file) = files.iter().find(|file| !is_sha256(&file.etag) && is_weights(file)) {
        let error = anyhow!("{} of {repository}: the hub names no sha256 for it", file.filename);
        return Err(Failure::Refused(hinted(error, "weights are not used unchecked")));
    }
    let bytes: u64 = files.iter().map(|file| file.file_size).sum();
    common.say(format!(
        "Downloading {repository} ({} files, {}) to {}",
        files.len(),
        crate::text::bytes(bytes),
        client.cache_dir().display()
    ));
    let bar = progress(bytes, common);
    for file in &files {
        bar.set_message(file.filename.clone());
        if is_sha256(&file.etag) {
            fetch_blob(&model, file, repository, limit, &bar).await?;
        }
        // Finds the blob if it is there, and links it as the cache's layout wants.
        let link = model.download_file().filename(&file.filename).revision(commit.as_str());
        let small = if is_sha256(&file.etag) { 0 } else { file.file_size };
        let whole = limit + Duration::from_secs(small / SLOWEST);
        let what = format!("{} of {repository}", file.filename);
        within(whole, &what, link.send()).await?.map_err(explain)?;
        bar.inc(small);
    }
    bar.finish_and_clear();
    point_to(repository, revision.unwrap_or(MAIN), &commit)?;
    let file = file.or_else(|| single_gguf(&wanted));
    let found = cached::find(Wanted { repository, file, revision });
    found.ok_or_else(|| {
        let error = anyhow!("{repository}: the repository is not a whole model");
        hinted(error, WHOLE).into()
    })
}

/// What a repository needs.
const WHOLE: &str =
    "it should have config.json, tokenizer.json and model*.safetensors, or a .gguf file";

/// Makes a commit the one that is found in the cache by a revision's name, now that all of it is there.
fn point_to(repository: &str, revision: &str, commit: &str) -> anyhow::Result<()> {
    if is_commit(revision) {
        return Ok(());
    }
    let file = repository_folder(repository).join("refs").join(revision);
    let named = || format!("{}", file.display());
    std::fs::create_dir_all(file.parent().unwrap_or(&file)).with_context(named)?;
    std::fs::write(&file, commit).with_context(named)
}

fn single_gguf(wanted: &[String]) -> Option<&str> {
    wanted.iter().find(|name| name.ends_with(".gguf")).map(String::as_str)
}

/// The files at the root of a repository.
async fn list(
    model: &HFRepository<RepoTypeModel>,
    commit: &str,
    repository: &str,
    limit: Duration,
) -> Result<Vec<String>, Failure> {
    let explain = |error| explain(error, repository);
    let what = format!("the list of files of {repository}");
    let entries = model.list_tree().revision(commit).recursive(true).send().map_err(explain)?;
    let mut entries = std::pin::pin!(entries);
    let mut names = Vec::new();
    while let Some(entry) = within(limit, &what, entries.next()).await? {
        if let RepoTreeEntry::File { path, .. } = entry.map_err(explain)? {
            names.push(path);
        }
    }
    Ok(names)
}

/// The files that a model needs: a .gguf file with its further parts, or configuration, tokenizer and
/// weights.
fn choose(repository: &str, names: &[String], file: Option<&str>) -> anyhow::Result<Vec<String>> {
    let ggufs = || names.iter().filter(|name| name.ends_with(".gguf"));
    let listed = || ggufs().map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some(file) = file {
        let parts = cached::parts_of(Path::new(file));
        let parts: Vec<String> =
            parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        return match parts.iter().find(|part| !names.contains(part)) {
            None => Ok(parts),
            Some(missing) => {
                let error = anyhow!("{repository} has no file {missing}");
                Err(match listed() {
                    list if list.is_empty() => hinted(error, "it has no .gguf files at all"),
                    list => hinted(error, format!("it has {list}")),
                })
            }
        };
    }
    let at_root = |name: &&String| !name.contains('/');
    let weights = |name: &&String| name.starts_with("model") && name.ends_with(".safetensors");
    if names.iter().filter(at_root).any(|name| weights(&name)) {
        // Better now than behind gigabytes.
        for needed in ["config.json", "tokenizer.json"] {
            if !names.iter().any(|name| name == needed) {
                let error = anyhow!("{repository} has no {needed}: it is not a whole model");
                return Err(hinted(error, WHOLE));
            }
        }
        let kept = |name: &&String| {
            let word = [".json", ".jinja"].iter().any(|end| name.ends_with(end));
            weights(name)
                || word
                || ["tokenizer.model", "merges.txt", "vocab.txt"].contains(&name.as_str())
        };
        return Ok(names.iter().filter(at_root).filter(kept).cloned().collect());
    }
    let firsts: Vec<&String> =
        ggufs().filter(|name| !super::is_later_part(Path::new(name))).collect();
    match firsts[..] {
        [only] => choose(repository, names, Some(only)),
        [] => {
            let error = anyhow!("{repository} has neither model*.safetensors nor .gguf files");
            Err(hinted(error, "wootz reads MLX's and Hugging Face's layout, and GGUF"))
        }
        _ => {
            let error = anyhow!("{repository} has several .gguf files");
            Err(hinted(error, format!("choose one, as {repository}:FILE; it has {}", listed())))
        }
    }
}

/// Downloads a file to its place among the cache's blobs, from where an earlier run stopped.
async fn fetch_blob(
    model: &HFRepository<RepoTypeModel>,
    file: &FileMetadataInfo,
    repository: &str,
    limit: Duration,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let blob = repository_folder(repository).join("blobs").join(&file.etag);
    if blob.is_file() {
        bar.inc(file.file_size);
        return Ok(());
    }
    let blobs = blob.parent().unwrap_or(&blob);
    std::fs::create_dir_all(blobs).with_context(|| format!("{}", blobs.display()))?;
    let part = blob.with_extension("incomplete");
    let named = || format!("{}", part.display());
    let mut to =
        OpenOptions::new().create(true).read(true).append(true).open(&part).with_context(named)?;
    if !to.try_lock_exclusive().with_context(named)? {
        let error = anyhow!("another process is downloading {} of {repository}", file.filename);
        return Err(hinted(error, "wait for it, and start this again").into());
    }
    let mut hash = Sha256::new();
    let mut have = hash_all(&mut to, &mut hash).with_context(named)?;
    if have > file.file_size {
        (hash, have) = (Sha256::new(), 0);
        to.set_len(0).with_context(named)?;
    }
    bar.inc(have);
    let mut attempt = 1;
    while have < file.file_size {
        let before = have;
        let streamed = stream(model, file, &mut to, (&mut hash, &mut have), limit, bar).await;
        let most =
            if matches!(streamed, Err(Broken::Stalled)) { STALLED_ATTEMPTS } else { ATTEMPTS };
        match streamed {
            Ok(()) => {}
            // Whatever came is kept, so that trying again gets further.
            Err(Broken::Connection(_) | Broken::Stalled) if attempt < most || have > before => {
                attempt = if have > before { 1 } else { attempt + 1 };
                tokio::time::sleep(Duration::from_millis(200 * attempt as u64)).await;
            }
            Err(Broken::Connection(error)) => return Err(explain(error, repository)),
            Err(Broken::Stalled) => {
                return Err(stalled(&format!("{} of {repository}", file.filename), limit));
            }
            Err(Broken::Disk(error)) => {
                let missing = crate::text::bytes(file.file_size - have);
                let error = anyhow!("{}: {error}", part.display());
                let hint = format!(
                    "{missing} are missing: make room, or set HF_HUB_CACHE to another folder, and start \
                     again; what is there is used"
                );
                return Err(hinted(error, hint).into());
            }
        }
    }
    let got = hex(&hash.finalize());
    if got != file.etag {
        std::fs::remove_file(&part).with_context(named)?;
        let error =
            anyhow!("{} of {repository}: sha256 is {got}, expected {}", file.filename, file.etag);
        return Err(Failure::Refused(hinted(error, "what was downloaded is removed; start again")));
    }
    to.sync_all().with_context(named)?;
    std::fs::rename(&part, &blob).with_context(named)?;
    Ok(())
}

/// Why a stream ended early.
enum Broken {
    Connection(HFError),
    /// Nothing came for too long.
    Stalled,
    Disk(std::io::Error),
}

/// Appends what is missing.
async fn stream(
    model: &HFRepository<RepoTypeModel>,
    file: &FileMetadataInfo,
    to: &mut File,
    (hash, have): (&mut Sha256, &mut u64),
    limit: Duration,
    bar: &ProgressBar,
) -> Result<(), Broken> {
    let range = *have..file.file_size;
    let call = model
        .download_file_stream()
        .filename(&file.filename)
        .revision(file.commit_hash.as_str())
        .range(range.clone());
    let answer = tokio::time::timeout(limit, call.send()).await.map_err(|_| Broken::Stalled)?;
    let (length, mut chunks) = answer.map_err(Broken::Connection)?;
    // A server may send everything, whatever it was asked for.
    if range.start > 0 && length == Some(file.file_size) {
        to.set_len(0).map_err(Broken::Disk)?;
        bar.set_position(bar.position().saturating_sub(*have));
        (*hash, *have) = (Sha256::new(), 0);
    }
    loop {
        let next = tokio::time::timeout(limit, chunks.next()).await;
        let Some(chunk) = next.map_err(|_| Broken::Stalled)? else { break };
        let chunk = chunk.map_err(Broken::Connection)?;
        to.write_all(&chunk).map_err(Broken::Disk)?;
        hash.update(&chunk);
        *have += chunk.len() as u64;
        bar.inc(chunk.len() as u64);
    }
    Ok(())
}

/// Hashes what a file holds; says how many bytes that are.
fn hash_all(file: &mut File, hash: &mut Sha256) -> std::io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    loop {
        let count = file.read(&mut buffer)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else {
            return Ok(bytes);
        };
        hash.update(read);
        bytes += count as u64;
    }
}

fn is_weights(file: &FileMetadataInfo) -> bool {
    [".safetensors", ".gguf"].iter().any(|end| file.filename.ends_with(end))
}

/// Large files are named by their sha256; others, such as configurations, by git's hash.
fn is_sha256(etag: &str) -> bool {
    etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What the hub's refusals mean to a user.
fn explain(error: HFError, repository: &str) -> Failure {
    let page = format!("https://huggingface.co/{repository}");
    Failure::Refused(match &error {
        HFError::AuthRequired { .. } | HFError::Forbidden { .. } => {
            let hint = format!(
                "it may be gated: accept its terms at {page}, make a token there, and set HF_TOKEN to it"
            );
            hinted(anyhow!("{repository}: the hub does not let you read this repository"), hint)
        }
        HFError::RevisionNotFound { revision, .. } => {
            let hint = format!("{page}/tree/main lists branches and tags");
            hinted(anyhow!("{repository}: there is no revision {revision}"), hint)
        }
        HFError::RepoNotFound { .. } => {
            let hint = "check the spelling; a private repository needs HF_TOKEN";
            hinted(anyhow!("{repository}: there is no such repository"), hint)
        }
        HFError::Request { source, .. } if source.is_connect() || source.is_timeout() => {
            return Failure::Unreachable(error.to_string());
        }
        _ => anyhow!(error).context(repository.to_string()),
    })
}

fn progress(bytes: u64, common: &Common) -> ProgressBar {
    if common.quiet {
        return ProgressBar::hidden();
    }
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style)
}
