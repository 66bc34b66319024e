// Numbers of rows by their places, and rows of a table by their ids.
#include "../places.hpp"

RLK_COMPOSED_PLACES(Embedding, call.V, {
  const Places rows(recorder, of_row(call.ids), call.V);
  rows.report();
  recorder.output(call.y, rows.known(recorder.take_rows(recorder.table(call.weight), rows.index().node)));
})
RLK_COMPOSED_PLACES(Gather, call.D, {
  const Places columns(recorder, call.index, call.D);
  if (call.K > 0) columns.report_rows();
  recorder.output(call.y, columns.known(recorder.gather(recorder.input(call.x), columns.index().node)));
})
RLK_COMPOSED_PLACES(IndexSelect, call.D, {
  const Places columns(recorder, call.index, call.D);
  columns.report();
  recorder.output(call.y, columns.known(recorder.take_columns(recorder.input(call.x), columns.index().node)));
})
