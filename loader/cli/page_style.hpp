// How the page of `report` looks: light and dark as the reader's system is, one column on a phone.
#pragma once

namespace rlk::cli {

inline constexpr const char* kPageStyle = R"css(
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --soft: #57606a; --line: #d0d7de; --card: #f6f8fa;
  --good: #116329; --good-back: #dafbe1; --bad: #a40e26; --bad-back: #ffebe9; --wait: #7d4e00; --wait-back: #fff8c5; }
@media (prefers-color-scheme: dark) {
  :root { --back: #0d1117; --text: #e6edf3; --soft: #9ea7b3; --line: #30363d; --card: #161b22; --good: #56d364;
    --good-back: #12261e; --bad: #ff7b72; --bad-back: #2d1316; --wait: #e3b341; --wait-back: #272115; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; }
h3 { font-size: 1.05rem; margin: 0; }
p { margin: .4rem 0; } .soft { color: var(--soft); } code { font-family: ui-monospace, monospace; font-size: .9em; }
nav ul, .cards { list-style: none; padding: 0; margin: .6rem 0; display: flex; flex-wrap: wrap; gap: .4rem 1rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: .8rem; align-items: start; }
.cards > li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem; }
.cards > li > h3 { display: flex; flex-wrap: wrap; gap: .5rem; align-items: baseline; }
caption { text-align: left; }
.word { white-space: nowrap; border-radius: 1rem; padding: 0 .6rem; font-size: .85rem; font-weight: 600; border: 1px solid currentcolor; }
.good { color: var(--good); background: var(--good-back); } .bad { color: var(--bad); background: var(--bad-back); }
.wait { color: var(--wait); background: var(--wait-back); } .off { color: var(--soft); background: var(--card); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .5rem 0 0; }
dt { color: var(--soft); } dd { margin: 0; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem; }
.scroll:focus-visible, a:focus-visible, summary:focus-visible { outline: 2px solid currentcolor; outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .35rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; } tbody tr:last-child > * { border-bottom: 0; }
.matrix th, .matrix td { white-space: nowrap; overflow-wrap: normal; }
.matrix tbody th { position: sticky; left: 0; background: var(--back); font-weight: 600; }
.findings td, .findings th { overflow-wrap: break-word; } td small { display: block; color: inherit; opacity: .85; }
details { margin: .8rem 0; } summary { cursor: pointer; font-weight: 600; } a { color: inherit; }
@media (max-width: 40rem) { body { padding: .7rem; }
  .matrix tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 8rem; max-width: 9rem; } dl { grid-template-columns: 1fr; } dt { margin-top: .3rem; }
  .findings, .findings tbody, .findings tr, .findings td, .findings th { display: block; width: 100%; border: 0; }
  .findings thead { position: absolute; left: -99rem; } .findings tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  .findings td, .findings th { padding: .1rem .6rem; } }
@media print { details > * { display: block; } .scroll { overflow: visible; } }
)css";

}  // namespace rlk::cli
