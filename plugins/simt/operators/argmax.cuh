// Where the largest number of each row is. A row is read once.
#include "../skeleton/rows.cuh"

RLK_SIMT_ROWS(Argmax, (in(x), id_of_row(index)), { row.put_id(index, row.first_place(d, from(x)).column); })
