//! Different optimizers for different parameters.

use std::collections::BTreeMap;

use super::{LearningRate, Optimizer};
use crate::array::Array;
use crate::error::{Error, Result};

/// Says by name and value whether a parameter belongs to an optimizer.
type Filter = Box<dyn Fn(&str, &Array) -> bool + Send + Sync>;

/// Gives each parameter to the first optimizer whose filter takes it, and what is left to the last.
///
/// ```
/// use wootz::optim::{AdamW, MultiOptimizer, Muon, Optimizer};
/// use wootz::{Tree, grad_of, nn};
/// let mut model = nn::Linear::new(3, 2, true)?;
/// let mut optimizer = MultiOptimizer::new(AdamW::new(1e-3)?)
///     .first(Muon::new(0.02)?, |name, array| name.ends_with("weight") && array.rank() == 2);
/// let gradients = model.parameters();
/// optimizer.update(&mut model, &gradients)?;
/// assert!(optimizer.state().contains_key("states.0.weight.v"));
/// assert!(optimizer.state().contains_key("states.1.bias.m"));
/// # Ok::<(), wootz::Error>(())
/// ```
pub struct MultiOptimizer {
    /// Each with the filter of what it takes; the last takes everything.
    members: Vec<(Box<dyn Optimizer + Send>, Filter)>,
}

impl MultiOptimizer {
    /// Everything goes to one optimizer, as long as no other comes [first](MultiOptimizer::first).
    pub fn new(rest: impl Optimizer + Send + 'static) -> MultiOptimizer {
        MultiOptimizer { members: vec![(Box::new(rest), Box::new(|_, _| true))] }
    }

    /// Adds an optimizer for the parameters that `filter` takes and no earlier one has taken.
    pub fn first(
        mut self,
        optimizer: impl Optimizer + Send + 'static,
        filter: impl Fn(&str, &Array) -> bool + Send + Sync + 'static,
    ) -> MultiOptimizer {
        let before_last = self.members.len() - 1;
        self.members.insert(before_last, (Box::new(optimizer), Box::new(filter)));
        self
    }

    /// Arrays by the optimizer they belong to.
    fn split(&self, arrays: &BTreeMap<String, Array>) -> Vec<BTreeMap<String, Array>> {
        let mut parts = vec![BTreeMap::new(); self.members.len()];
        for (name, array) in arrays {
            let takes = |(_, filter): &(_, Filter)| filter(name, array);
            if let Some(index) = self.members.iter().position(takes) {
                parts[index].insert(name.clone(), array.clone());
            }
        }
        parts
    }

    /// Changes each optimizer in turn. If one cannot be, those before it get their state back.
    fn all_or_none(
        &mut self,
        mut change: impl FnMut(usize, &mut dyn Optimizer) -> Result<()>,
    ) -> Result<()> {
        let mut before = Vec::with_capacity(self.members.len());
        for (index, (optimizer, _)) in self.members.iter_mut().enumerate() {
            let state = optimizer.state();
            if let Err(error) = change(index, &mut **optimizer) {
                for ((optimizer, _), state) in self.members.iter_mut().zip(&before) {
                    optimizer.set_state(state)?;
                }
                return Err(error);
            }
            before.push(state);
        }
        Ok(())
    }
}

impl Optimizer for MultiOptimizer {
    fn init(&mut self, parameters: &BTreeMap<String, Array>) -> Result<()> {
        let parts = self.split(parameters);
        let mut members = self.members.iter_mut().zip(parts);
        members.try_for_each(|((optimizer, _), part)| optimizer.init(&part))
    }

    fn apply_gradients(
        &mut self,
        gradients: &BTreeMap<String, Array>,
        parameters: &BTreeMap<String, Array>,
    ) -> Result<BTreeMap<String, Array>> {
        let parts = self.split(gradients);
        let mut updated = BTreeMap::new();
        self.all_or_none(|index, optimizer| {
            updated.extend(optimizer.apply_gradients(&parts[index], parameters)?);
            Ok(())
        })?;
        Ok(updated)
    }

    fn state(&self) -> BTreeMap<String, Array> {
        let states = self.members.iter().enumerate().flat_map(|(index, (optimizer, _))| {
            let named = move |(name, array)| (format!("states.{index}.{name}"), array);
            optimizer.state().into_iter().map(named)
        });
        states.collect()
    }

    fn set_state(&mut self, state: &BTreeMap<String, Array>) -> Result<()> {
        let mut parts = vec![BTreeMap::new(); self.members.len()];
        let mut unexpected = Vec::new();
        for (name, array) in state {
            let rest = name.strip_prefix("states.").and_then(|rest| rest.split_once('.'));
            let found = rest.and_then(|(index, rest)| Some((index.parse::<usize>().ok()?, rest)));
            match found.filter(|(index, _)| *index < parts.len()) {
                Some((index, rest)) => {
                    parts[index].insert(rest.to_string(), array.clone());
                }
                None => unexpected.push(name.clone()),
            }
        }
        if !unexpected.is_empty() {
            let (missing, mismatched) = (Vec::new(), Vec::new());
            return Err(Error::Keys { op: "set_state", missing, unexpected, mismatched });
        }
        self.all_or_none(|index, optimizer| optimizer.set_state(&parts[index]))
    }

    fn learning_rate(&self) -> Option<Array> {
        self.members.first().and_then(|(optimizer, _)| optimizer.learning_rate())
    }

    fn set_learning_rate(&mut self, rate: LearningRate) -> Result<()> {
        let mut members = self.members.iter_mut();
        members.try_for_each(|(optimizer, _)| optimizer.set_learning_rate(rate.clone()))
    }
}
