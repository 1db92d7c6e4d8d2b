struct Params { count: u32, start: u32, start_high: u32, step: u32, step_high: u32 }
var<immediate> p: Params;
