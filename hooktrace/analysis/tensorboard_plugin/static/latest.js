// One answer of the server, asked for again when something else is wanted or the run has grown.

export class Latest {
  // `take(answer, parameters)`, or `fail(message)`; the page is drawn anew after either.
  constructor(data, route, take, fail = () => {}) {
    Object.assign(this, { data, route, take, fail, isPending: false });
    this.forget();
  }

  // What was answered is wanted no more.
  forget() { this.asked = null; }

  // one request is under way at most.
  async need(parameters = {}) {
    const { data } = this, { model, info, era } = data;
    if (!model || !info) return;
    const wanted = JSON.stringify([era, info.version, parameters]);
    if (wanted === this.asked || this.isPending) return;
    this.asked = wanted;
    this.isPending = true;
    try {
      const answer = await data.ask(this.route, parameters);
      if (era === data.era) this.take(answer, parameters);
    } catch (error) {
      if (era === data.era) this.fail(error.message);
    }
    this.isPending = false;
    data.view.touch();
  }
}
