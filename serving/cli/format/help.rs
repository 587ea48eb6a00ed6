//! The language in one screen.

/// What `--help` of `consume` shows.
pub(crate) const OUTPUT_HELP: &str = "\
Format: text with these letters
  %t topic      %p partition    %o offset      %T timestamp in ms   %i number of the record, from 1
  %k key        %v or %s value  %h headers     %P{name} one header
  %K key bytes  %S value bytes  (-1: null)     %% a percent sign
After a letter: {hex} {base64} {json} {len}; %T{strftime[%Y-%m-%dT%H:%M:%S]}; numbers {hex} {big32} {big64}
Escapes: \\n \\t \\r \\0 \\\\ \\xNN";

/// What `--help` of `produce` shows: the letters that input knows.
pub(crate) const INPUT_HELP: &str = "\
Format: text with these letters
  %k key          %v or %s value          %h headers, as name=value,name=value
  %p partition    %T timestamp in ms      %% a percent sign
After %k, %v or %s: {hex} {base64} {json} (null: none; a string: its text; anything else is kept as it is written)
Escapes: \\n \\t \\r \\0 \\\\ \\xNN";
