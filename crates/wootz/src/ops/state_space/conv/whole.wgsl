// A step of a sequence, whose first are those of its state.
fn whole(batch: u32, step: u32, channel: u32) -> f32 {
    if (step < KEPT_STEPS) {
        return state(p.state_offset + (batch * KEPT_STEPS + step) * p.channels + channel);
    }
    return x(p.x_offset + (batch * p.steps + step - KEPT_STEPS) * p.channels + channel);
}
