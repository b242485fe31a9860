/** A component that is drawn again only when a property is another. */
import { Component, type ComponentChildren, type FunctionComponent } from "preact";

export function memo<P extends object>(draw: (props: P) => ComponentChildren): FunctionComponent<P> {
  class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const [old, fresh] = [this.props as Record<string, unknown>, next as Record<string, unknown>];
      const names = Object.keys(fresh);
      return names.length !== Object.keys(old).length || names.some((name) => old[name] !== fresh[name]);
    }

    override render() {
      return draw(this.props as P);
    }
  }
  return Memo as unknown as FunctionComponent<P>;
}
