"""An order and the job that confirms it, in one transaction: both are there, or neither."""

import sqlite3

from treadle import App

app = App("sqlite:///shop.db")  # the jobs live in the shop's own database


@app.task(queue="mail")
def confirm(order_id: int) -> None:
    print(f"mail: thank you for order {order_id}")


def place_order(db: sqlite3.Connection, item: str, in_stock: bool = True) -> int:
    with db:  # commits, or rolls back if something is raised
        order_id = db.execute("insert into orders (item) values (?) returning id", (item,)).fetchone()[0]
        confirm.using(within=db).enqueue_sync(order_id)
        if not in_stock:
            raise LookupError(f"{item} is sold out")
    return int(order_id)


def main() -> None:
    app.open_sync()  # before the first transaction: opening an app needs the database for a moment
    db = sqlite3.connect("shop.db")
    db.execute("create table if not exists orders (id integer primary key, item text not null)")
    print(f"order {place_order(db, 'a loom')}: committed, with its job")
    try:
        place_order(db, "a treadle", in_stock=False)
    except LookupError as error:
        print(f"order 2: {error}; rolled back, with its job")
    orders = db.execute("select count(*) from orders").fetchone()[0]
    print(f"orders {orders}, jobs {sum(app.jobs.count_sync().values())}")
    db.close()


if __name__ == "__main__":
    main()
