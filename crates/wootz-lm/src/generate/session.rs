//! A model with its memory: prompts go in chunk by chunk, and each further token by one recorded plan.

use std::sync::Arc;

use wootz::{Array, CompileStats, Compiled, DType, PlanSummary, compile, eval, reshape};

use crate::cache::{Cache, CacheOptions, LayerState, Pass};
use crate::models::LanguageModel;
use crate::{Error, Result};

/// A model that reads tokens and says what comes next.
///
/// ```no_run
/// use wootz_lm::cache::CacheOptions;
/// use wootz_lm::checkpoint::Checkpoint;
/// use wootz_lm::generate::Session;
/// use wootz_lm::models::{LoadOptions, load};
/// let model = load(&Checkpoint::open("model.gguf")?, &LoadOptions::default())?;
/// let mut session = Session::new(model, &CacheOptions::default())?;
/// let mut logits = session.prefill(&[504, 3575, 282, 4649, 314], 512, &mut |_, _| ())?;
/// for _ in 0..8 {
///     let token = wootz::argmax(&logits, -1, true)?;
///     println!("{}", token.item::<u32>()?);
///     logits = session.decode(&token)?;
/// }
/// # Ok::<(), wootz_lm::Error>(())
/// ```
pub struct Session {
    model: Arc<dyn LanguageModel>,
    cache: Cache,
    step: Option<Step>,
    head: Option<Head>,
    /// Of steps that were recorded for caches kept otherwise.
    earlier: CompileStats,
}

type Function = Box<dyn Fn(&[Array]) -> wootz::Result<Vec<Array>> + Send + Sync>;

/// What a recorded step makes of the scores: from `[scores, state…]` to results.
pub(crate) type Head = Arc<dyn Fn(&[Array]) -> wootz::Result<Vec<Array>> + Send + Sync>;

/// The recorded step of a decoder.
struct Step {
    /// Arrays of the head's state, if it has a head.
    state: Option<usize>,
    compiled: Compiled<Function>,
    /// The layers that it was recorded for, without their arrays, and how many those are.
    layers: Vec<(LayerState, usize)>,
}

impl Session {
    /// With an empty cache.
    pub fn new(model: Arc<dyn LanguageModel>, options: &CacheOptions) -> Result<Session> {
        let cache = Cache::new(&model.layers(), options, &model.info().device)?;
        Ok(Session { model, cache, step: None, head: None, earlier: CompileStats::default() })
    }

    /// The model.
    pub fn model(&self) -> &Arc<dyn LanguageModel> {
        &self.model
    }

    /// Reads tokens, `chunk` at a time, and gives the scores `[1, vocabulary]` of what comes next. `progress` is
    /// told how many of how many tokens are done.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        chunk: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Array> {
        if chunk == 0 {
            return Err(Error::argument("chunk", "at least 1", 0));
        }
        let mut done = 0;
        progress(done, tokens.len());
        while tokens.len() - done > chunk {
            self.read(&tokens[done..done + chunk], |_, _| Ok(None))?;
            done += chunk;
            progress(done, tokens.len());
        }
        let logits = self.read(&tokens[done..], |model, hidden| {
            let last = hidden.shape()[1] - 1;
            let hidden = hidden.index((.., last as i64))?;
            model.logits(&hidden).map(Some)
        })?;
        progress(tokens.len(), tokens.len());
        logits.ok_or_else(|| Error::argument("tokens", "at least one", 0))
    }

    /// Reads tokens, and gives the scores `[tokens, vocabulary]` of what comes after each.
    pub fn logits_of(&mut self, tokens: &[u32]) -> Result<Array> {
        let logits = self.read(tokens, |model, hidden| {
            let logits = model.logits(hidden)?;
            let (count, vocabulary) = (logits.shape()[1], logits.shape()[2]);
            reshape(&logits, &[count, vocabulary]).map(Some)
        })?;
        logits.ok_or_else(|| Error::argument("tokens", "at least one", 0))
    }

    /// Reads tokens of one text at once, and makes something of the states behind the last layer.
    fn read(
        &mut self,
        tokens: &[u32],
        finish: impl FnOnce(&dyn LanguageModel, &Array) -> wootz::Result<Option<Array>>,
    ) -> Result<Option<Array>> {
        self.check(tokens)?;
        if self.cache.batch() != 1 {
            let expected = "a cache of one text; read each by itself and stack the caches";
            return Err(Error::argument("tokens", expected, self.cache.batch()));
        }
        let device = self.cache.device().clone();
        let start = self.cache.length();
        self.cache.reserve(tokens.len())?;
        let ids = Array::from_slice_on(tokens, &[1, tokens.len()], &device)?;
        let layers = self.cache.take_layers();
        let model = self.model.clone();
        // Arrays that are still shared with a snapshot stay whole there; else appending is in place.
        let (result, layers) = wootz::with_device(&device, move || -> wootz::Result<_> {
            let mut pass = Pass::known(start, tokens.len(), layers)?;
            let hidden = model.hidden(&ids, &mut pass)?;
            let result = finish(model.as_ref(), &hidden)?;
            let layers = pass.into_layers();
            drop(hidden);
            let wanted = layers.iter().flat_map(|layer| &layer.arrays).chain(&result);
            eval(&wanted.cloned().collect::<Vec<_>>())?;
            Ok((result, layers))
        })?;
        self.cache.give_back(layers, tokens.len())?;
        Ok(result)
    }

    /// Reads one token of each text, `[batch, 1]`, which need not be computed yet, and gives the scores
    /// `[batch, vocabulary]` of what comes next. On a GPU it does not wait for them.
    pub fn decode(&mut self, token: &Array) -> Result<Array> {
        let scores = self.advance(token, None)?.into_iter().next();
        scores.ok_or_else(|| Error::argument("decode", "scores", "none"))
    }

    /// What [`decode_with`](Self::decode_with) makes of the scores.
    pub(crate) fn set_head(&mut self, head: Head) {
        self.earlier = self.stats();
        (self.step, self.head) = (None, Some(head));
    }

    /// As [`decode`](Self::decode), with the head's results of the scores and its state: all in one plan, so
    /// that a token takes one submission.
    pub(crate) fn decode_with(&mut self, token: &Array, state: &[Array]) -> Result<Vec<Array>> {
        self.advance(token, Some(state))
    }

    fn advance(&mut self, token: &Array, state: Option<&[Array]>) -> Result<Vec<Array>> {
        let batch = self.cache.batch();
        if token.shape() != [batch, 1] {
            let expected = format!("[{batch}, 1]");
            return Err(Error::argument("token", expected, format!("{:?}", token.shape())));
        }
        if !self.cache.is_whole() {
            return Err(lost());
        }
        self.cache.reserve(1)?;
        self.record(state.map(<[Array]>::len));
        let Some(step) = &self.step else {
            return Err(Error::argument("decode", "a recorded step", "none"));
        };
        let positions = self.cache.lengths().iter().map(|&length| length as i32);
        let positions: Vec<i32> = positions.collect();
        let positions = Array::from_slice_on(&positions, &[batch], self.cache.device())?;
        let mut arguments = vec![token.astype(DType::U32)?, positions];
        arguments.extend(state.into_iter().flatten().cloned());
        // Given away, so that appending is in place.
        let mut layers = self.cache.take_layers();
        layers.iter_mut().for_each(|layer| arguments.append(&mut layer.arrays));
        let mut results = step.compiled.call_owned(arguments)?;
        let kept: usize = step.layers.iter().map(|(_, count)| count).sum();
        let mut arrays = results.split_off(results.len().saturating_sub(kept)).into_iter();
        for (layer, (_, count)) in layers.iter_mut().zip(&step.layers) {
            layer.arrays = arrays.by_ref().take(*count).collect();
        }
        self.cache.give_back(layers, 1)?;
        Ok(results)
    }

    /// Makes a function to record, if there is none for a cache that is kept so.
    fn record(&mut self, state: Option<usize>) {
        let layers = self.cache.layers();
        let same = |step: &Step| {
            let states = step.layers.iter().zip(layers);
            step.state == state
                && step.layers.len() == layers.len()
                && states.clone().all(|((a, _), b)| (&a.kind, a.scheme) == (&b.kind, b.scheme))
        };
        if self.step.as_ref().is_some_and(same) {
            return;
        }
        self.earlier = self.stats();
        let model = self.model.clone();
        let head = state.and(self.head.clone());
        let bare = |layer: &LayerState| LayerState {
            kind: layer.kind.clone(),
            scheme: layer.scheme,
            arrays: Vec::new(),
        };
        let kept: Vec<_> = layers.iter().map(|layer| (bare(layer), layer.arrays.len())).collect();
        let counts = kept.clone();
        let function: Function = Box::new(move |arguments: &[Array]| {
            let [token, positions, rest @ ..] = arguments else {
                let got = arguments.len();
                return Err(wootz::Error::argument("decode", "arguments", "two or more", got));
            };
            let (state, arrays) = rest.split_at(state.unwrap_or(0).min(rest.len()));
            let mut arrays = arrays.iter().cloned();
            let layers = counts.iter().map(|(layer, count)| LayerState {
                arrays: arrays.by_ref().take(*count).collect(),
                ..layer.clone()
            });
            let mut pass = Pass::next(positions, layers.collect())?;
            let hidden = model.hidden(token, &mut pass)?;
            let hidden = reshape(&hidden, &[hidden.shape()[0], hidden.shape()[2]])?;
            let scores = model.logits(&hidden)?;
            let mut results = match &head {
                Some(head) => head(&[&[scores], state].concat())?,
                None => vec![scores],
            };
            results.extend(pass.into_layers().into_iter().flat_map(|layer| layer.arrays));
            Ok(results)
        });
        // One capacity is in use at a time.
        self.step = Some(Step { state, compiled: compile(function).capacity(2), layers: kept });
    }

    fn check(&self, tokens: &[u32]) -> Result<()> {
        if !self.cache.is_whole() {
            return Err(lost());
        }
        if tokens.is_empty() {
            return Err(Error::argument("tokens", "at least one", 0));
        }
        let vocabulary = self.model.info().vocab_size;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary) {
            return Err(Error::argument("tokens", format!("below {vocabulary}"), token));
        }
        Ok(())
    }

    /// What the model remembers.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Goes on from another memory: a snapshot, one from a file, or several stacked.
    pub fn set_cache(&mut self, cache: Cache) -> Result<()> {
        let (own, given) = (self.model.layers().len(), cache.layers().len());
        if own != given {
            return Err(Error::argument("cache", format!("one of {own} layers"), given));
        }
        self.cache = cache;
        Ok(())
    }

    /// Forgets the last tokens; see [`Cache::trim`].
    pub fn trim(&mut self, tokens: usize) -> Result<()> {
        self.cache.trim(tokens)
    }

    /// How often a step was recorded, and how often it ran.
    pub fn stats(&self) -> CompileStats {
        let now = self.step.as_ref().map(|step| step.compiled.stats()).unwrap_or_default();
        CompileStats {
            traces: self.earlier.traces + now.traces,
            replays: self.earlier.replays + now.replays,
        }
    }

    /// What one step takes: operations, kernels, memory.
    pub fn plan(&mut self) -> Result<PlanSummary> {
        let batch = self.cache.batch();
        self.cache.reserve(1)?;
        self.record(None);
        let device = self.cache.device().clone();
        let zeros = |shape: &[usize], dtype: DType| {
            wootz::with_device(&device, || Array::zeros(shape, dtype))
        };
        let mut arguments = vec![zeros(&[batch, 1], DType::U32)?, zeros(&[batch], DType::I32)?];
        arguments.extend(self.cache.arrays().cloned());
        let Some(step) = &self.step else {
            return Err(Error::argument("plan", "a recorded step", "none"));
        };
        Ok(step.compiled.plan(&arguments)?)
    }
}

fn lost() -> Error {
    let got = "one that was lost when an earlier call failed; set another";
    Error::argument("cache", "a whole one", got)
}
