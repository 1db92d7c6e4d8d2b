//! The kernels by chunks of steps. First come products of a chunk's keys, which heads share. Then a workgroup
//! takes a block of a head's values through the chunks, a part of them in a launch. The gradients that do not
//! carry a state are those of each chunk by itself. Products are of cooperative matrices where there are some.

use super::super::super::TURNS;
use super::{HELD, Regions, Sizes, THREADS, memory, offsets, readers};
use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Steps of a chunk.
const STEPS: usize = 32;
/// Steps from which on chunks pay.
const LEAST_STEPS: usize = 16;
/// Keys of the largest state that is taken through chunks.
const MOST_KEYS: usize = 512;
/// Those of the largest of which a workgroup holds columns of two cooperative matrices.
const MOST_MATRIX_KEYS: usize = 256;
/// Columns of a block of values.
const COLUMNS: usize = 16;
/// Numbers that products of keys may take whatever the queries do.
const LEAST_PAIRS: usize = 1 << 12;
/// Numbers kept for chunks at a time, if that is enough for one head. In unit tests heads take turns.
const KEPT: usize = if cfg!(test) { 1 << 14 } else { 1 << 23 };

/// Whether steps go by chunks: with one gate each, and enough of them.
pub(super) fn fits(sizes: Sizes) -> bool {
    let Sizes { steps, keys, gates, .. } = sizes;
    gates == 1 && steps >= LEAST_STEPS && keys <= MOST_KEYS
}

/// Products of a chunk's rows: of two kinds, or only of the second without correction.
fn chunk_pairs(corrects: bool) -> usize {
    (1 + corrects as usize) * STEPS * STEPS
}

/// Chunks that are gone through in a launch: as many as loops have turns for, and products of whose keys take no
/// more memory than queries do or than any device has.
fn at_once(sizes: Sizes, corrects: bool) -> usize {
    let Sizes { batch, key_heads, steps, keys, .. } = sizes;
    // Turns of all loops of a chunk: pieces of keys, the triangle's and those of each state's number.
    let own = (STEPS * COLUMNS).div_ceil(THREADS);
    let looks = keys.div_ceil(16) * (6 + 4 * (own + 1));
    let absorbs = 2 * keys.div_ceil(STEPS) * (6 + 5 * own);
    let states = 2 * HELD.div_ceil(THREADS);
    let by_turns = TURNS / (looks + absorbs + states + 500);
    let heads = batch * key_heads;
    let by_memory =
        (heads * steps * keys).max(LEAST_PAIRS) / (heads * chunk_pairs(corrects)).max(1);
    by_turns.min(by_memory).clamp(1, steps.div_ceil(STEPS).max(1))
}

/// Numbers that the products of keys with keys and queries are, of the chunks of a launch.
pub(super) fn pairs(sizes: Sizes, corrects: bool) -> usize {
    sizes.batch * sizes.key_heads * at_once(sizes, corrects) * chunk_pairs(corrects)
}

/// What is kept of some heads at a time, behind the gradients.
pub(super) struct Kept {
    /// Heads that go by chunks at a time.
    heads: usize,
    /// Pieces of the keys that sums are kept of.
    pieces: usize,
    /// Where products of keys are, and then the others in the order of the parameters.
    starts: [usize; 8],
}

impl Kept {
    pub(super) fn new(sizes: Sizes, corrects: bool, regions: &mut Regions) -> Kept {
        let Sizes { batch, heads, steps, keys, values, .. } = sizes;
        let (all, some) = (steps.div_ceil(STEPS), at_once(sizes, corrects));
        let (pieces, square) = (keys.div_ceil(STEPS), chunk_pairs(corrects));
        let (state, each) = (keys * values, steps * values);
        let sums = some * pieces * 3 * STEPS;
        let of_head = [some * square, all * state, some * state, each, each, each, sums];
        let heads_at_once = KEPT / of_head.iter().sum::<usize>().max(1);
        let heads_at_once = heads_at_once.clamp(1, (batch * heads).max(1));
        let mut starts = [regions.take(pairs(sizes, corrects)); 8];
        for (start, length) in starts[1..].iter_mut().zip(of_head) {
            *start = regions.take(heads_at_once * length);
        }
        Kept { heads: heads_at_once, pieces, starts }
    }
}

/// How the kernels of a call are made.
#[derive(Clone, Copy)]
struct Way {
    sizes: Sizes,
    corrects: bool,
    matrices: bool,
}

/// A text with what multiplies its tiles, plain and with cooperative matrices.
struct Text {
    name: &'static str,
    text: &'static str,
    products: [&'static str; 2],
    /// The columns of rows that are multiplied at a time.
    depths: [usize; 2],
    /// Tiles of such rows in workgroup memory.
    tiles: usize,
}

const BLOCK_PRODUCTS: [&str; 2] =
    [include_str!("../block_tiled.wgsl"), include_str!("../block_cooperative.wgsl")];

const PAIRS: Text = Text {
    name: "pairs",
    text: include_str!("../pairs.wgsl"),
    products: [include_str!("../pairs_tiled.wgsl"), include_str!("../pairs_cooperative.wgsl")],
    depths: [16, 16],
    tiles: 3,
};
const CHUNKED: Text = Text {
    name: "chunked",
    text: concat!(
        include_str!("../decays.wgsl"),
        include_str!("../block.wgsl"),
        include_str!("../chunked.wgsl")
    ),
    products: BLOCK_PRODUCTS,
    depths: [16, 16],
    tiles: 2,
};
const SLOPES: Text = Text {
    name: "slopes",
    text: concat!(
        include_str!("../decays.wgsl"),
        include_str!("../block.wgsl"),
        include_str!("../slopes.wgsl")
    ),
    products: BLOCK_PRODUCTS,
    depths: [16, 16],
    tiles: 2,
};
const GRADIENTS: Text = Text {
    name: "gradients",
    text: concat!(include_str!("../decays.wgsl"), include_str!("../gradients.wgsl")),
    products: [
        include_str!("../gradients_tiled.wgsl"),
        include_str!("../gradients_cooperative.wgsl"),
    ],
    depths: [8, 16],
    tiles: 5,
};
const GATES: Text = Text {
    name: "gates",
    text: concat!(include_str!("../decays.wgsl"), include_str!("../gates.wgsl")),
    products: ["", ""],
    depths: [1, 1],
    tiles: 1,
};

impl Way {
    fn new(call: &GpuCall<'_>, sizes: Sizes, corrects: bool) -> Way {
        let whole = sizes.keys.is_multiple_of(8) && sizes.keys <= MOST_MATRIX_KEYS;
        Way { sizes, corrects, matrices: whole && call.gpu().has_cooperative_matrix() }
    }

    /// Values that a workgroup takes through chunks.
    fn columns(&self) -> usize {
        let most = if self.matrices { COLUMNS } else { HELD / self.sizes.keys.max(1) };
        1 << most.clamp(1, COLUMNS).ilog2()
    }

    fn blocks(&self) -> usize {
        self.sizes.values.div_ceil(self.columns())
    }

    fn chunks(&self) -> usize {
        self.sizes.steps.div_ceil(STEPS)
    }

    /// The parameters: groups and how many of them a head has, heads and chunks, where inputs begin, and where
    /// regions of the scratch memory.
    fn params(
        &self,
        (groups, blocks): (usize, usize),
        [first_head, first_chunk, end_chunk]: [usize; 3],
        offsets: [usize; 8],
        gradients: [usize; 6],
        kept: [usize; 8],
    ) -> Vec<u32> {
        let Sizes { steps, values, .. } = self.sizes;
        let counts = [
            groups,
            blocks,
            steps,
            values,
            self.sizes.shared(),
            first_head,
            first_chunk,
            end_chunk,
        ];
        let params = counts.into_iter().chain(offsets).chain(gradients).chain(kept);
        params.map(|n| n as u32).collect()
    }

    /// Parts of the chunks for a launch each.
    fn parts(&self) -> Vec<[usize; 2]> {
        let (at_once, chunks) = (at_once(self.sizes, self.corrects), self.chunks());
        let end = |first: usize| chunks.min(first + at_once);
        (0..chunks).step_by(at_once).map(|first| [first, end(first)]).collect()
    }

    /// A kernel's whole text, with the functions that it is given.
    fn source(&self, text: &Text, functions: &str) -> String {
        let Way { sizes: Sizes { keys, .. }, corrects, matrices } = *self;
        let (depth, pad) = (text.depths[matrices as usize], if matrices { 4 } else { 1 });
        let tile = (text.tiles * STEPS * (depth + pad)).max(STEPS * (STEPS + 4));
        let constants = format!(
            "const STEPS = {STEPS}u;\nconst KEYS = {keys}u;\nconst WHOLE_KEYS = {}u;\n\
             const COLS = {}u;\nconst CORRECTS = {corrects};\nconst DEPTH = {depth}u;\n\
             const PITCH = {}u;\nconst M_PITCH = {}u;\nconst TILE = {tile}u;\n\
             const PAIRS = {}u;\nconst SECOND = PAIRS - STEPS * STEPS;\n",
            keys.next_multiple_of(STEPS),
            self.columns(),
            depth + pad,
            STEPS + pad,
            chunk_pairs(corrects),
        );
        let (extensions, common, subgroup) = match matrices && !text.products[1].is_empty() {
            true => (
                "enable wgpu_cooperative_matrix;\n",
                include_str!("../matrices.wgsl"),
                "@builtin(subgroup_id) subgroup: u32,",
            ),
            // Subgroups do not matter.
            false => ("", "const subgroup = 0u;\nfn clear(thread: u32) {}\n", ""),
        };
        let body = text.text.replace("/* SUBGROUP */", subgroup);
        [
            extensions,
            &constants,
            common,
            include_str!("../chunk.wgsl"),
            functions,
            text.products[matrices as usize],
            &body,
        ]
        .concat()
    }

    fn variant(&self, name: &str, dtype: DType) -> String {
        let Way { sizes: Sizes { keys, .. }, corrects, matrices } = *self;
        let way = if matrices { "cooperative" } else { "tiled" };
        format!("{name}/{way}/{dtype}/{keys}/{corrects}")
    }

    /// Products of the keys of some chunks.
    fn multiply_keys(
        &self,
        call: &mut GpuCall<'_>,
        [first, end]: [usize; 2],
        offsets: [usize; 8],
        kept: [usize; 8],
    ) -> Result<()> {
        let groups = self.sizes.batch * self.sizes.key_heads * (end - first);
        let (text, mut bindings) = readers(call, &[0, 1]);
        let text = [&text, &memory(bindings.len()), include_str!("../of_keys.wgsl")].concat();
        bindings.push(Bind::Scratch);
        call.launch(&Kernel {
            variant: self.variant("keys", call.meta(0).dtype),
            source: &|| self.source(&PAIRS, &text),
            bindings: &bindings,
            params: &self.params((groups, end - first), [0, first, end], offsets, [0; 6], kept),
            groups: grid(groups),
        })
    }
}

/// What the kernels for blocks of values do, and in which order steps receive from others.
fn block_constants(known: bool, seen: bool, backwards: bool) -> String {
    format!(
        "const LOOKS_KNOWN = {known};\nconst LOOKS_SEEN = {seen};\nconst BACKWARDS = {backwards};\n"
    )
}

pub(super) fn forward(call: &mut GpuCall<'_>, sizes: Sizes, corrects: bool) -> Result<()> {
    let way = Way::new(call, sizes, corrects);
    let (dtype, offsets) = (call.meta(0).dtype, offsets(call));
    // Parts of the chunks go on from the next state, and the first one, too.
    if !call.aliased(5) {
        let size = call.meta(5).size();
        call.launch(&Kernel {
            variant: "start".into(),
            source: &|| {
                format!(
                    "{}{}{}",
                    packed::reader("state", 0, DType::F32),
                    packed::writer("next", 1, DType::F32),
                    include_str!("../../scan/start.wgsl"),
                )
            },
            bindings: &[Bind::Input(5), Bind::Output(1)],
            params: &[size as u32, offsets[5] as u32],
            groups: grid(size.div_ceil(64)),
        })?;
    }
    let (mut text, mut bindings) = readers(call, &[0, 1, 2, 3, 4]);
    text.push_str(&packed::writer("next", 5, DType::F32));
    text.push_str(&packed::writer("y", 6, dtype));
    text.push_str(&memory(7));
    text.push_str(&block_constants(corrects, true, false));
    text.push_str(
        "const RESULTS = true;\nconst KEEPS = false;\n\
         fn given(i: u32) -> f32 { return next_data[i]; }\n\
         fn leave(i: u32, x: f32) { next_data[i] = x; }\n\
         fn keep_state(head: u32, chunk: u32, key: u32, value: u32, x: f32) {}\n\
         fn keep_learnt(at: u32, wrong: f32, learnt: f32) {}\n",
    );
    bindings.extend([Bind::Output(1), Bind::Output(0), Bind::Scratch]);
    let blocks = way.blocks();
    let groups = sizes.batch * sizes.heads * blocks;
    for [first, end] in way.parts() {
        way.multiply_keys(call, [first, end], offsets, [0; 8])?;
        call.launch(&Kernel {
            variant: way.variant(CHUNKED.name, dtype),
            source: &|| way.source(&CHUNKED, &text),
            bindings: &bindings,
            params: &way.params((groups, blocks), [0, first, end], offsets, [0; 6], [0; 8]),
            groups: grid(groups),
        })?;
    }
    Ok(())
}

/// The gradients of all heads, some at a time: the states before chunks, their gradients behind chunks, and
/// then each chunk by itself.
pub(super) fn backward(
    call: &mut GpuCall<'_>,
    sizes: Sizes,
    corrects: bool,
    regions: &mut Regions,
) -> Result<()> {
    let way = Way::new(call, sizes, corrects);
    let kept = Kept::new(sizes, corrects, regions);
    let (offsets, gradients) = (offsets(call), regions.gradients);
    let states = block_constants(corrects, false, false)
        + "const RESULTS = false;\nconst KEEPS = true;\n\
           fn given(i: u32) -> f32 {\n\
           if (p.first_chunk == 0u) { return state(p.state + i); }\n\
           return memory[p.dstate + i];\n}\n\
           fn leave(i: u32, x: f32) { memory[p.dstate + i] = x; }\n\
           fn keep_state(head: u32, chunk: u32, key: u32, value: u32, x: f32) {\n\
           memory[p.starts + state_at(head, chunk, key) + value] = x;\n}\n\
           fn keep_learnt(at: u32, wrong: f32, learnt: f32) {\n\
           memory[p.wrong + at] = wrong;\nmemory[p.learnt + at] = learnt;\n}\n\
           fn q(i: u32) -> f32 { return 0.0; }\nfn y_set(i: u32, x: f32) {}\n";
    let slopes = block_constants(true, false, true)
        + "fn given(i: u32) -> f32 {\n\
           if (p.end_chunk == chunks()) { return dnext(p.dnext + i); }\n\
           return memory[p.dstate + i];\n}\n\
           fn leave(i: u32, x: f32) { memory[p.dstate + i] = x; }\n";
    let (blocks, parts, of_values) = (way.blocks(), way.parts(), include_str!("../of_values.wgsl"));
    // Text and what it is given, inputs that it reads, workgroups of a head or of its chunks.
    type Step<'a> = (&'a Text, &'a str, &'a [usize], [usize; 2]);
    let forward: Step<'_> = (&CHUNKED, &states, &[1, 2, 3, 4, 5], [blocks, 0]);
    let back: [Step<'_>; 4] = [
        (&SLOPES, &slopes, &[0, 1, 3, 4, 6, 7], [blocks, 0]),
        (&PAIRS, of_values, &[6], [0, 1]),
        (&GRADIENTS, "", &[0, 1, 3, 6], [0, kept.pieces]),
        (&GATES, "", &[3], [0, 1]),
    ];
    let run =
        |call: &mut GpuCall<'_>, step: Step<'_>, first_head: usize, [first, end]: [usize; 2]| {
            let (text, functions, inputs, [of_head, of_chunk]) = step;
            let (mut given, mut bindings) = readers(call, inputs);
            given.push_str(&memory(bindings.len()));
            given.push_str(include_str!("../kept.wgsl"));
            given.push_str(functions);
            bindings.push(Bind::Scratch);
            let blocks = of_head + of_chunk * (end - first);
            let groups = kept.heads.min(sizes.batch * sizes.heads - first_head) * blocks;
            let place = [first_head, first, end];
            call.launch(&Kernel {
                variant: way.variant(text.name, call.meta(0).dtype),
                source: &|| way.source(text, &given),
                bindings: &bindings,
                params: &way.params((groups, blocks), place, offsets, gradients, kept.starts),
                groups: grid(groups),
            })
        };
    // All heads' at once, so they are computed again only if there is no room for those of all chunks.
    let again = parts.len() > 1;
    if !again {
        way.multiply_keys(call, [0, way.chunks()], offsets, kept.starts)?;
    }
    for first_head in (0..sizes.batch * sizes.heads).step_by(kept.heads) {
        for &part in &parts {
            if again {
                way.multiply_keys(call, part, offsets, kept.starts)?;
            }
            run(call, forward, first_head, part)?;
        }
        for (behind, &part) in parts.iter().rev().enumerate() {
            // The last part's are those that the way forward has left.
            if again && behind > 0 {
                way.multiply_keys(call, part, offsets, kept.starts)?;
            }
            for step in back {
                run(call, step, first_head, part)?;
            }
        }
    }
    Ok(())
}
