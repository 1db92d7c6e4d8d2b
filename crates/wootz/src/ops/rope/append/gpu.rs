//! Rotating and appending on the GPU: one kernel, whose threads take items of queries, of keys and of values one after
//! the other. Each of them is a text of its own, whose names end in its number.

use std::fmt::Write;

use super::super::gpu::{ITEM, TURN, neighbours, output, position};
use super::super::{Positions, Rope};
use super::{
    FREQUENCIES, KEY_CACHE, KEYS, OFFSETS, QUERIES, RopeAppend, SLOTS, VALUE_CACHE, VALUES,
};
use crate::array::{DType, Meta};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, MATH, numbered, packed};
use crate::ops::indexing::offsets::place_function;
use crate::ops::indexing::raw::{MAIN, copy_on_gpu, status, threads_grid};

/// Parameters that all texts have, and those of each part.
const COMMON: [&str; 6] =
    ["length", "capacity", "frequencies_offset", "positions_offset", "slots_offset", "site"];
const OWN: [&str; 5] = ["at", "per_text", "per_head", "per_row", "end"];

/// An array that is moved.
#[derive(Clone, Copy)]
struct Part<'a> {
    input: usize,
    output: usize,
    meta: &'a Meta,
    /// Features that are rotated.
    dims: usize,
    traditional: bool,
}

impl Part<'_> {
    fn heads(&self) -> usize {
        self.meta.shape()[1]
    }

    fn features(&self) -> usize {
        self.meta.shape()[3]
    }

    /// Whether rows are whole words, and so are pairs of pairs.
    fn whole(&self) -> bool {
        packed::per_word(self.meta.dtype) == 1
            || self.features().is_multiple_of(2)
                && (self.traditional || (self.dims / 2).is_multiple_of(2))
    }

    /// Whether they are where they come from, too.
    fn whole_source(&self) -> bool {
        let layout = &self.meta.layout;
        packed::per_word(self.meta.dtype) > 1
            && self.whole()
            && layout.offset.is_multiple_of(2)
            && layout.strides[..3].iter().all(|stride| stride % 2 == 0)
    }

    /// Items of pairs of a row, and all of them.
    fn items(&self) -> [usize; 2] {
        let per_word = packed::per_word(self.meta.dtype);
        let pairs = (self.dims / 2).div_ceil(if self.traditional { 1 } else { per_word });
        [pairs, pairs + (self.features() - self.dims).div_ceil(per_word)]
    }

    fn threads(&self) -> usize {
        self.items()[1] * self.meta.size() / self.features()
    }

    /// What its text depends on.
    fn key(&self) -> String {
        let [heads, features, dims] = [self.heads(), self.features(), self.dims];
        format!("{}.{heads}.{features}.{dims}.{}", self.output, self.whole_source())
    }

    /// Its text, with what is read at `binding` and written at the next.
    fn text(&self, binding: usize) -> String {
        let dtype = self.meta.dtype;
        let [pairs, items] = self.items();
        let target = match self.output {
            0 | 1 => "head * p.capacity + slot(text) + row",
            _ => "head * p.length + row",
        };
        let turns = if pairs > 0 { "turns_of(item, PAIRED, text, row)" } else { "vec4f(0.0)" };
        let mut text = packed::reader("x", binding, dtype);
        text += &output(binding + 1, dtype, self.whole());
        text += &neighbours(dtype, "x_data", self.whole_source());
        let _ = write!(
            text,
            "const ITEMS = {items}u;\nconst PAIRED = {pairs}u;\nconst HEADS = {}u;\n\
             const FEATURES = {}u;\nconst HALF = {}u;\n",
            self.heads(),
            self.features(),
            self.dims / 2
        );
        let part = include_str!("part.wgsl").replace("TARGET", target).replace("TURNS", turns);
        text + ITEM + &part
    }
}

pub(super) fn append(call: &mut GpuCall<'_>, op: &RopeAppend) -> Result<()> {
    copy_on_gpu(call, KEY_CACHE, 0, false)?;
    copy_on_gpu(call, VALUE_CACHE, 1, false)?;
    let (dims, traditional) = op.rope.map_or((0, false), |rope| (rope.dims, rope.traditional));
    let part = |input: usize, output: usize, dims: usize| Part {
        input,
        output,
        meta: call.meta(input),
        dims,
        traditional,
    };
    let mut parts = vec![part(KEYS, 0, dims), part(VALUES, 1, 0)];
    if op.rope.is_some() {
        parts.push(part(QUERIES, 2, dims));
    }
    // Slots and status, frequencies and offsets, and an input and an output for each.
    let common = 2 + 2 * op.rope.is_some() as usize;
    match common + 2 * parts.len() <= call.gpu().max_storage_bindings() {
        true => launch(call, op, &parts),
        false => {
            launch(call, op, &parts[..2])?;
            if parts.len() > 2 { launch(call, op, &parts[2..]) } else { Ok(()) }
        }
    }
}

fn launch(call: &mut GpuCall<'_>, op: &RopeAppend, parts: &[Part<'_>]) -> Result<()> {
    let dtype = call.meta(KEYS).dtype;
    let (length, capacity) = (call.meta(KEYS).shape()[2], call.meta(KEY_CACHE).shape()[2]);
    let slots = call.meta(SLOTS);
    let offset = |input: usize| match op.rope {
        Some(_) => call.meta(input).layout.offset as u32,
        None => 0,
    };
    let (frequencies, positions) = (offset(FREQUENCIES), offset(OFFSETS));
    let site = call.status_site(SLOTS, capacity + 1 - length);
    let mut params = vec![
        length as u32,
        capacity as u32,
        frequencies,
        positions,
        slots.layout.offset as u32,
        site,
    ];
    let scales = op.rope.map_or([0.0; 2], |rope| [rope.scale as f32, rope.amplitude as f32]);
    params.extend(scales.map(f32::to_bits));
    let mut bindings = vec![Bind::Input(SLOTS)];
    if op.rope.is_some() {
        bindings.extend([Bind::Input(FREQUENCIES), Bind::Input(OFFSETS)]);
    }
    let mut end = 0;
    for part in parts {
        let layout = &part.meta.layout;
        // Strides may be negative: sums of words wrap.
        params.push(layout.offset as u32);
        params.extend(layout.strides[..3].iter().map(|&stride| stride as u32));
        end += part.threads();
        params.push(end as u32);
        bindings.extend([Bind::Input(part.input), Bind::Output(part.output)]);
    }
    let kinds = Kinds {
        rope: op.rope,
        slots: (slots.dtype, slots.size()),
        offsets: op.rope.map(|_| (call.meta(OFFSETS).dtype, call.meta(OFFSETS).size())),
    };
    let keys: Vec<String> = parts.iter().map(Part::key).collect();
    let rope = op.rope.map(|rope| (rope.traditional, rope.inverse));
    call.launch_with_status(&Kernel {
        variant: format!(
            "{dtype} {rope:?} {:?} {:?} {}",
            kinds.slots,
            kinds.offsets,
            keys.join(" ")
        ),
        source: &|| source(dtype, parts, &kinds),
        bindings: &bindings,
        params: &params,
        groups: threads_grid(end),
    })
}

/// What else a text depends on: dtypes and numbers of slots and offsets.
struct Kinds {
    rope: Option<Rope>,
    slots: (DType, usize),
    offsets: Option<(DType, usize)>,
}

fn source(dtype: DType, parts: &[Part<'_>], kinds: &Kinds) -> String {
    let (slot_dtype, slots) = kinds.slots;
    let mut fields = COMMON.join(": u32, ") + ": u32, scale: f32, amplitude: f32,\n";
    let mut text = [packed::PACKING, MATH].concat();
    text += &packed::reader("slots", 0, slot_dtype);
    text += &place_function(slot_dtype, false);
    let each = if slots == 1 { "0u" } else { "text" };
    let _ = write!(
        text,
        "fn slot(text: u32) -> u32 {{ return place(slots(p.slots_offset + {each}), p.capacity).x; }}\n\
         const PER_WORD = {}u;\n",
        packed::per_word(dtype)
    );
    let mut binding = 1;
    let traditional = kinds.rope.is_some_and(|rope| rope.traditional);
    let pairs = if traditional { 1 } else { packed::per_word(dtype) };
    let _ = write!(text, "const TRADITIONAL = {traditional};\nconst PAIRS = {pairs}u;\n");
    let mut turn = TURN.to_string();
    if let (Some(rope), Some((offset_dtype, offsets))) = (kinds.rope, kinds.offsets) {
        text += &packed::reader("frequencies", 1, DType::F32);
        let each = if offsets == 1 { "0u" } else { "1u" };
        let position = position(2, (Positions::Offset, Some(offset_dtype)));
        text += &position.replace("p.positions_batch", each);
        let sign = if rope.inverse { "-1.0" } else { "1.0" };
        turn = turn.replace("HALF", &format!("{}u", rope.dims / 2));
        turn = turn.replace("AXES", "1u").replace("SINE_SIGN", sign);
        binding = 3;
    } else {
        // Nothing is rotated.
        turn = "fn rotated(at: vec2f, turn: vec2f) -> vec2f { return at; }\n".into();
    }
    text += &turn;
    let mut moves = String::new();
    for (number, part) in parts.iter().enumerate() {
        text += &numbered(&part.text(binding), &OWN, number);
        binding += 2;
        for field in OWN {
            let _ = write!(fields, "{field}_{number}: u32, ");
        }
        let start = match number {
            0 => "0u".to_string(),
            _ => format!("p.end_{}", number - 1),
        };
        let _ = writeln!(
            moves,
            "if (id >= {start} && id < p.end_{number}) {{ move_part_{number}(id - {start}); }}"
        );
    }
    text += &status(binding);
    // Nothing is written if any slot is out of range.
    let _ = write!(
        text,
        "struct Params {{ {fields} }}\nvar<immediate> p: Params;\n{MAIN}\
         for (var i = 0u; i < {slots}u; i++) {{\n\
         let slot = slots(p.slots_offset + i);\n\
         if (place(slot, p.capacity + 1u - p.length).y == 0u) {{ report(p.site, bits(slot)); return; }}\n\
         }}\n{moves}}}\n"
    );
    text
}
