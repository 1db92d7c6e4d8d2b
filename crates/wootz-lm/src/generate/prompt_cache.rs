//! Caches of earlier prompts, kept so that a prompt that begins like one of them goes on from there.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use wootz::DType;

use crate::cache::{Cache, Mark};
use crate::error::{Error, Result};
use crate::models::{LanguageModel, ModelInfo};

/// Caches by the tokens that are in them. The one that shares the longest beginning with a prompt is
/// used; a longer one is cut where attention allows it. State that cannot be cut (recurrent layers,
/// a sliding window that has slid) goes back to one of the cache's checkpoints: ends of chunks of a
/// prompt, and the place before its last token.
///
/// The caches must all be of one model and of the same settings.
pub struct PromptCache {
    /// The most recently used last.
    entries: Vec<Kept>,
    limit: usize,
}

/// The cache of some tokens.
#[derive(Clone)]
pub struct Kept {
    /// Those that the cache has seen.
    pub tokens: Vec<u32>,
    /// The cache.
    pub cache: Cache,
    /// Earlier times of it, shortest first, if it cannot always be cut.
    pub checkpoints: Vec<Mark>,
}

impl PromptCache {
    /// Keeps at most so many bytes; those not used for longest go first.
    pub fn new(bytes: usize) -> PromptCache {
        PromptCache { entries: Vec::new(), limit: bytes }
    }

    /// The number of caches.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the caches hold. Memory that several share counts for each of them.
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(Kept::bytes).sum()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// A cache with the longest beginning of `prompt` that there is. At least the last token is left to
    /// be computed, because what comes after it is wanted.
    pub fn take(&mut self, prompt: &[u32]) -> Result<Option<Kept>> {
        self.take_like(prompt, None)
    }

    /// The same, for whoever goes on from a cache that is kept `like` another: an error takes nothing.
    pub(crate) fn take_like(
        &mut self,
        prompt: &[u32],
        like: Option<&Cache>,
    ) -> Result<Option<Kept>> {
        let most = prompt.len().saturating_sub(1);
        let usable = |kept: &Kept| kept.reaches(common(&kept.tokens, prompt).min(most));
        let lengths = self.entries.iter().map(usable).enumerate();
        let best = lengths.filter(|(_, length)| *length > 0).max_by_key(|(_, length)| *length);
        let Some((place, length)) = best else { return Ok(None) };
        like.map_or(Ok(()), |like| like.expect_alike(&self.entries[place].cache))?;
        let kept = self.entries.remove(place);
        // One that the prompt goes on from will come back longer; others stay for prompts like theirs.
        if kept.tokens.len() == length {
            return Ok(Some(kept));
        }
        let mut cut = kept.clone();
        self.entries.push(kept);
        cut.cut(length)?;
        Ok(Some(cut))
    }

    /// Keeps a cache.
    pub fn insert(&mut self, mut kept: Kept) -> Result<()> {
        let (length, count) = (kept.cache.length(), kept.tokens.len());
        if length != count {
            let expected = format!("{length} tokens, as in the cache");
            return Err(Error::argument("prompt cache", expected, count));
        }
        kept.thin_out();
        // What the new one can be cut to is not needed beside it.
        self.entries.retain(|old| {
            let inside = kept.tokens.starts_with(&old.tokens);
            !(inside && kept.reaches(old.tokens.len()) == old.tokens.len())
        });
        if count > 0 && kept.bytes() <= self.limit {
            self.entries.push(kept);
        }
        let mut bytes = self.bytes();
        while bytes > self.limit {
            bytes -= self.entries.remove(0).bytes();
        }
        Ok(())
    }

    /// Writes the cache used last into a file, with its tokens, its checkpoints and which model it is of.
    pub fn save(&self, path: impl AsRef<Path>, model: &dyn LanguageModel) -> Result<()> {
        let Some(kept) = self.entries.last() else {
            return Err(Error::argument("prompt cache", "at least one cache to save", "none"));
        };
        let tokens = json!(kept.tokens).to_string();
        let texts = [(TOKENS.to_string(), tokens), (MODEL.to_string(), identity(model)?)];
        kept.cache.save_with(path.as_ref(), &kept.checkpoints, &BTreeMap::from(texts))
    }

    /// Adds the cache that a file holds, which must be one of `model`'s, and returns the number of its
    /// tokens.
    pub fn load(&mut self, path: impl AsRef<Path>, model: &dyn LanguageModel) -> Result<usize> {
        let path = path.as_ref();
        let of =
            Cache::texts(path)?.remove(MODEL).unwrap_or_else(|| "one that is not named".into());
        let own = identity(model)?;
        if of != own {
            return Err(Error::invalid(path, format!("of another model: {of}; this one is {own}")));
        }
        let (cache, checkpoints, metadata) =
            Cache::load_with(path, &model.layers(), &model.info().device)?;
        let Some(tokens) = metadata.get(TOKENS) else {
            return Err(Error::invalid(path, format!("a cache without {TOKENS:?}")));
        };
        let tokens: Vec<u32> = serde_json::from_str(tokens)
            .map_err(|error| Error::invalid(path, format!("{TOKENS}: {error}")))?;
        if tokens.len() != cache.length() {
            let (said, there) = (tokens.len(), cache.length());
            return Err(Error::invalid(path, format!("{said} tokens named, {there} in the cache")));
        }
        let count = tokens.len();
        self.insert(Kept { tokens, cache, checkpoints })?;
        Ok(count)
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        self.cache.bytes() + self.checkpoints.iter().map(Mark::bytes).sum::<usize>()
    }

    /// The largest length up to `most` that the cache can be brought to.
    fn reaches(&self, most: usize) -> usize {
        let surplus = self.tokens.len() - most;
        if surplus == 0 || self.cache.can_trim(surplus) {
            return most;
        }
        let before = self.checkpoints.iter().map(Mark::length).filter(|&length| length <= most);
        before.max().unwrap_or(0)
    }

    /// Brings the cache to a length that it reaches.
    fn cut(&mut self, length: usize) -> Result<()> {
        let surplus = self.tokens.len() - length;
        self.checkpoints.retain(|mark| mark.length() <= length);
        match self.checkpoints.last() {
            _ if self.cache.can_trim(surplus) => self.cache.trim(surplus)?,
            Some(mark) if mark.length() == length => self.cache.back_to(mark)?,
            _ => return Err(Error::argument("length", "one that the cache can be cut to", length)),
        }
        self.tokens.truncate(length);
        Ok(())
    }

    /// Drops checkpoints that lie close to others, but not the last.
    fn thin_out(&mut self) {
        self.checkpoints.sort_by_key(Mark::length);
        self.checkpoints.dedup_by_key(|mark| mark.length());
        while self.checkpoints.len() > CHECKPOINTS {
            let lengths: Vec<usize> =
                std::iter::once(0).chain(self.checkpoints.iter().map(Mark::length)).collect();
            let gaps = lengths.windows(3).map(|around| around[2] - around[0]);
            let closest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
            self.checkpoints.remove(closest.map_or(0, |(place, _)| place));
        }
    }
}

/// Checkpoints that a cache keeps at most.
const CHECKPOINTS: usize = 8;

/// The key of a file's metadata that holds the tokens, as a JSON list.
const TOKENS: &str = "tokens";

/// The key that holds which model it is.
const MODEL: &str = "model";

/// Parameters that a model is told from others by, and numbers of each.
const SAMPLES: [usize; 2] = [8, 64];

/// What tells a model from others: its kind, its sizes and some of its numbers.
fn identity(model: &dyn LanguageModel) -> Result<String> {
    let ModelInfo { architecture, layers, hidden_size, parameters, .. } = model.info();
    let arrays = model.parameters();
    let [count, numbers] = SAMPLES;
    let mut hasher = Fnv::default();
    for sample in 0..count.min(arrays.len()) {
        let place = sample * (arrays.len() - 1) / (count - 1);
        let Some((name, array)) = arrays.iter().nth(place) else { continue };
        let first = array.flatten(0, -1)?.index(..array.size().min(numbers) as i64)?;
        hasher.add(name.as_bytes());
        for number in first.astype(DType::F32)?.to_vec::<f32>()? {
            hasher.add(&number.to_bits().to_le_bytes());
        }
    }
    let Fnv(hash) = hasher;
    Ok(format!(
        "{architecture} of {layers} layers, {hidden_size} features and {parameters} numbers, {hash:016x}"
    ))
}

/// A hash that is the same on every machine and for ever, which the standard library's need not be: FNV-1a.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// How many tokens two sequences begin with alike.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
